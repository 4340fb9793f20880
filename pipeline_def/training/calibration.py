"""Temperature scaling: one number that makes probabilities mean what they say, after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from pipeline_def.serving.signatures import answer

# Of a model that is always right the best temperature is zero, of one that knows nothing infinite.
_LOWEST, _HIGHEST = 0.05, 20.0


@dataclass(frozen=True)
class Calibration:
    """What temperature scaling does to the answers to the images that it is fitted on."""

    temperature: float
    """The logits are divided by it: above 1 it makes the model less sure."""
    images: int
    """That it was fitted on."""
    loss: float
    """Mean cross-entropy before, nats."""
    calibrated_loss: float
    """Likewise, after."""


def calibrate(model: tf_keras.Model, images: tf.data.Dataset, views: int) -> Calibration:
    """Fit the temperature of an exported model.

    Args:
        model: uint8 [batch, size, size, 3] → logits.
        images: batches of them and their label ids, of images that it was not trained on.
        views: of each image, as the model will be served.
    """
    ask = tf.function(lambda batch: answer(model, batch, views), autograph=False)
    answers = [(ask(batch).numpy(), ids.numpy()) for batch, ids in images]
    logits, ids = (np.concatenate(column) for column in zip(*answers, strict=True))
    return fit_temperature(logits, ids)


def fit_temperature(logits: NDArray[np.floating[Any]], ids: NDArray[np.int64]) -> Calibration:
    """Find the temperature of the least cross-entropy (Guo et al., 2017), 0.05 to 20.

    Args:
        logits: [images, classes].
        ids: column of the right class, [images].
    """
    logits = logits.astype(np.float64)
    rows = np.arange(len(ids))

    def loss(log_temperature: float) -> float:
        return -float(log_softmax(logits / np.exp(log_temperature), axis=1)[rows, ids].mean())

    bounds = (np.log(_LOWEST), np.log(_HIGHEST))
    best = minimize_scalar(loss, bounds=bounds, method="bounded")
    return Calibration(float(np.exp(best.x)), len(ids), loss(0.0), float(best.fun))
