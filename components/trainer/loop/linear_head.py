"""The last layer of a pretrained network: a logistic regression on its features."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tf_keras
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from tf_keras import layers

from components.trainer.loop.calibration import pick_true

# Inverse strengths of the penalty, for features scaled to unit variance and all images together. Of
# 160 to 3,000 images of photographs and CIFAR-10, 0.01 or 0.1 had the lowest cross-entropy. They
# are compared on the first images only, and not if a class has too few.
_STRENGTHS, _STRENGTH = (0.001, 0.01, 0.1, 1.0), 0.01
_PARTS, _COMPARED = 3, 1_000
_OPTIONS: dict[str, Any] = {"max_iter": 300, "tol": 1e-3}
# Bias of a class without images: it is never predicted.
_NEVER = -20.0

Floats = NDArray[np.floating[Any]]


def fit_head(
    head: tf_keras.Model,
    features: Floats,
    ids: NDArray[np.int64],
    *,
    class_weights: Sequence[float] | None = None,
) -> Callable[[Floats], Floats]:
    """Set the weights of a head to those with the lowest penalized cross-entropy.

    Args:
        head: from features [batch, d] to logits [batch, classes].
        features: of the training images, [images, d].
        ids: their label ids.
        class_weights: factors for the loss of each class; None: 1.

    Returns:
        What the head computes, without TensorFlow, which would trace it for a second.
    """
    [dense] = [layer for layer in head.layers if isinstance(layer, layers.Dense)]
    scale = next((layer.scale for layer in head.layers if isinstance(layer, layers.Rescaling)), 1.0)
    classes, present = int(head.output_shape[-1]), np.unique(ids)
    kernel, bias = np.zeros((features.shape[1], classes)), np.full(classes, _NEVER)
    bias[present] = 0.0
    if len(present) > 1:
        data = features.astype(np.float32)
        # Without a bias, nothing could move them back.
        mean = data.mean(axis=0) * dense.use_bias
        deviation = data.std(axis=0) + 1e-3
        weights = None if class_weights is None else np.asarray(class_weights)[ids]
        rows, offsets = _regress((data - mean) / deviation, ids, weights, dense.use_bias)
        rows = rows / deviation
        kernel[:, present] = rows.T
        bias[present] = offsets - rows @ mean
    if not dense.use_bias:
        bias[:] = 0.0
    dense.set_weights([kernel / scale, bias / scale][: len(dense.weights)])
    return lambda others: (others @ kernel + bias).astype(np.float32)


def _regress(
    data: Floats, ids: NDArray[np.int64], weights: Floats | None, use_bias: bool
) -> tuple[Floats, Floats]:
    """Return kernel [classes, d] and bias [classes] of the classes that `ids` has."""
    chosen = _STRENGTH
    first = slice(None, _COMPARED)
    if np.unique(ids[first], return_counts=True)[1].min() >= _PARTS:
        search = LogisticRegressionCV(
            Cs=_STRENGTHS, cv=_PARTS, scoring="neg_log_loss", refit=False, **_OPTIONS
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search.fit(data[first], ids[first])
        chosen = float(search.C_[0])
    model = LogisticRegression(C=chosen, fit_intercept=use_bias, **_OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data, ids, sample_weight=weights)
    kernel = model.coef_.astype(np.float64)
    bias = model.intercept_ + np.zeros(len(kernel))
    if len(kernel) == 1:  # Of the second of two classes.
        kernel, bias = (np.concatenate([-part, part]) / 2 for part in (kernel, bias))
    return kernel, bias


def measure(logits: Floats, ids: NDArray[np.int64]) -> dict[str, float]:
    """Return `loss`, `accuracy` and `balanced_accuracy` of at least one image.

    Logits are [images, classes], `ids` the true label ids, [images].
    """
    right = logits.argmax(axis=1) == ids
    losses = -pick_true(log_softmax, logits, ids, 1.0)
    recalls = [right[ids == label].mean() for label in np.unique(ids)]
    return {
        "loss": float(losses.mean()),
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(recalls)),
    }
