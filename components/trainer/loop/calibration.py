"""Numbers that are fitted after training, on images that were not trained on.

A temperature calibrates the probabilities; a threshold says which images are known.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from components.contract.confidence import Z
from components.metrics.score_metrics import Unknowns

# The best temperature is zero for a model that is always right, infinite for one that guesses.
_LOWEST, _HIGHEST = 0.05, 20.0
# Rounding must not cost an image.
_EPSILON = 1e-9
# Logits that are kept, 200 MB, and those in float64 at a time: five copies of all, as scipy makes
# them, took 1 GB of memory for 24,000 more images of 1,000 classes.
_MOST_LOGITS, _BLOCK = 50_000_000, 1_000_000

Logits = NDArray[np.floating[Any]]
Predict = Callable[[tf.Tensor], tf.Tensor]


def compile_logits(model: tf_keras.Model) -> Predict:
    """Return a function from images to logits before calibration."""
    # The last batch of each fold has a size of its own, and tracing takes a second.
    return tf.function(  # type: ignore[no-any-return]
        lambda images: model(images, training=False), autograph=False, reduce_retracing=True
    )


def predict_logits(
    predict: Predict, images: Iterable[Any]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the logits, and label ids, of batches of images and label ids.

    Of more than 50 million logits, the first are enough: images are in the order of a hash.
    """
    predicted, count = [], 0
    for batch, ids in images:
        predicted.append((predict(batch).numpy(), ids.numpy()))
        count += predicted[-1][0].size
        if count >= _MOST_LOGITS:
            break
    logits, labels = (np.concatenate(column) for column in zip(*predicted, strict=True))
    return logits, labels


def fit_threshold(scores: NDArray[np.float32], *, rate: float) -> Unknowns:
    """Fit the least score of a known image on images that the score was not fitted on.

    It is the corrected quantile of Angelopoulos and Bates (2021), https://arxiv.org/abs/2107.07511:
    a further image like these has a lower score with a probability of at most `rate`. NaN is
    left out.
    """
    scores = scores[np.isfinite(scores)]
    most = math.floor((len(scores) + 1) * rate + _EPSILON)
    threshold = float(np.sort(scores)[most - 1]) if most else None
    return Unknowns(rate, len(scores), threshold)


def fit_temperature(logits: Logits, ids: NDArray[np.int64]) -> float:
    """Return the divisor of the logits with the lowest cross-entropy, from 0.05 to 20.

    Above 1 it makes the model less confident (Guo et al., 2017). Logits are [images, classes],
    `ids` the true label ids, [images].
    """

    def loss(log_temperature: float) -> float:
        return -float(pick_true(log_softmax, logits, ids, np.exp(log_temperature)).mean())

    bounds = (np.log(_LOWEST), np.log(_HIGHEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def improves(before: Logits, after: Logits, ids: NDArray[np.int64]) -> bool:
    """Return whether other logits of the same images are better beyond chance.

    That is whether the whole 95 % interval of the paired difference of their cross-entropies, each
    with the best temperature, is above 0. Logits are [images, classes], `ids` the true label ids.
    """
    losses = [
        -pick_true(log_softmax, logits, ids, fit_temperature(logits, ids))
        for logits in (before, after)
    ]
    gains = losses[0] - losses[1]
    if len(gains) < 2:
        return False
    return bool(gains.mean() > Z * gains.std(ddof=1) / math.sqrt(len(gains)))


def pick_true(
    function: Callable[..., Any], logits: Logits, ids: NDArray[np.int64], temperature: float
) -> NDArray[np.float64]:
    """Return the value of `function` for the true label of each image, [images]."""
    values = np.empty(len(ids))
    size = max(1, _BLOCK // logits.shape[1])
    for start in range(0, len(ids), size):
        part = slice(start, start + size)
        of_part = function(logits[part].astype(np.float64) / temperature, axis=1)
        values[part] = of_part[np.arange(len(of_part)), ids[part]]
    return values
