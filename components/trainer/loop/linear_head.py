"""The last layer of a pretrained network: a logistic regression on its features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tf_keras
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from tf_keras import layers

# Inverse strength of the penalty, for features scaled to unit variance and for all images together.
_C = 0.003
_MOST_ITERATIONS = 300
# Of a class without images: it is never predicted.
_NEVER = -20.0

Floats = NDArray[np.floating[Any]]


def fit_head(
    head: tf_keras.Model,
    features: Floats,
    ids: NDArray[np.int64],
    *,
    class_weights: Sequence[float] | None = None,
) -> None:
    """Set the weights of a head to those with the lowest penalized cross-entropy.

    Args:
        head: from features [batch, d] to logits [batch, classes].
        features: of the training images, [images, d].
        ids: their label ids.
        class_weights: factors for the loss of each class; None: 1.
    """
    [dense] = [layer for layer in head.layers if isinstance(layer, layers.Dense)]
    scale = next((layer.scale for layer in head.layers if isinstance(layer, layers.Rescaling)), 1.0)
    classes, present = int(head.output_shape[-1]), np.unique(ids)
    kernel = np.zeros((features.shape[1], classes), np.float64)
    bias = np.full(classes, _NEVER)
    bias[present] = 0.0
    if len(present) > 1:
        data = features.astype(np.float32)
        mean, deviation = data.mean(axis=0), data.std(axis=0) + 1e-3
        model = LogisticRegression(
            C=_C, max_iter=_MOST_ITERATIONS, fit_intercept=dense.use_bias, tol=1e-4
        )
        weights = None if class_weights is None else np.asarray(class_weights)[ids]
        model.fit((data - mean) / deviation, ids, sample_weight=weights)
        rows, offsets = (
            model.coef_.astype(np.float64),
            model.intercept_ + np.zeros(len(model.coef_)),
        )
        if len(present) == 2:
            rows, offsets = (np.concatenate([-one, one]) / 2 for one in (rows, offsets))
        rows = rows / deviation
        kernel[:, present] = rows.T
        bias[present] = offsets - rows @ mean
    if dense.use_bias:
        dense.set_weights([kernel / scale, bias / scale])
    else:
        dense.set_weights([kernel / scale])


def measure(logits: Floats, ids: NDArray[np.int64]) -> dict[str, float]:
    """Return `loss`, `accuracy` and `balanced_accuracy` of logits, [images, classes]."""
    if not len(ids):
        return dict.fromkeys(("loss", "accuracy", "balanced_accuracy"), float("nan"))
    right = logits.argmax(axis=1) == ids
    losses = -log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(ids)), ids]
    recalls = [right[ids == label].mean() for label in np.unique(ids)]
    return {
        "loss": float(losses.mean()),
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(recalls)),
    }


def find_margins(logits: Floats, ids: NDArray[np.int64]) -> Floats:
    """Return the logit of the label less the largest other one, [images]."""
    rows = np.arange(len(ids))
    others = logits.copy()
    others[rows, ids] = -np.inf
    margins: Floats = logits[rows, ids] - others.max(axis=1)
    return margins
