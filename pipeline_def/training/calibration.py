"""Temperature scaling: one number, fitted after training, that calibrates the probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from pipeline_def.serving.signatures import Classifier

# The best temperature is zero for a model that is always right, infinite for one that guesses.
_LOWEST, _HIGHEST = 0.05, 20.0


@dataclass(frozen=True)
class Calibration:
    """The fitted temperature and its effect on the images that it was fitted on."""

    temperature: float
    """Divisor of the logits: above 1 it makes the model less confident."""
    images: int
    loss: float
    """Mean cross-entropy before, in nats."""
    calibrated_loss: float
    """Mean cross-entropy after."""


def calibrate(classifier: Classifier, images: tf.data.Dataset) -> Calibration:
    """Fit the temperature on batches of images and label ids that were not trained on."""
    predict = tf.function(classifier.logits, autograph=False)
    predicted = [(predict(batch).numpy(), ids.numpy()) for batch, ids in images]
    logits, ids = (np.concatenate(column) for column in zip(*predicted, strict=True))
    return fit_temperature(logits, ids)


def fit_temperature(logits: NDArray[np.floating[Any]], ids: NDArray[np.int64]) -> Calibration:
    """Find the temperature with the lowest cross-entropy (Guo et al., 2017), from 0.05 to 20.

    Logits are [images, classes], `ids` the true label ids, [images].
    """
    logits = logits.astype(np.float64)
    rows = np.arange(len(ids))

    def loss(log_temperature: float) -> float:
        return -float(log_softmax(logits / np.exp(log_temperature), axis=1)[rows, ids].mean())

    bounds = (np.log(_LOWEST), np.log(_HIGHEST))
    best = minimize_scalar(loss, bounds=bounds, method="bounded")
    return Calibration(float(np.exp(best.x)), len(ids), loss(0.0), float(best.fun))
