"""Whether an image is like those of training: the output `known`, and the score that decides it.

Images that are alike have features, the input of the last layer, that point in the same direction.
The score says by how much an image is nearer to the mean of a class than to that of all images, as
linear discriminant analysis measures it: the Mahalanobis distance relative to that of the images in
general (Ren et al., 2021, https://arxiv.org/abs/2106.09022) of normalized features (Mueller and
Hein, 2025, https://arxiv.org/abs/2505.18032).
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.contract.model_files import KNOWN, KNOWN_SCORE

# Added to the deviation of each feature, of the mean deviation; and to the variance within classes,
# of the mean variance. On CIFAR-10 with two classes left out, a third or three times as much of
# either changes the AUROC by at most 0.01.
_LEAST_DEVIATION, _RIDGE = 0.1, 3.0
# Above, the variances within classes count as equal: their covariance would take a gigabyte.
_MOST_FEATURES = 8192
_EPSILON = 1e-9
# A function of its own hides the operations within it.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Likeness:
    """How much images are like those of training, by their features."""

    mean: Floats
    """[features]."""
    scale: Floats
    """Factor of each feature, [features]."""
    kernel: Floats
    """[features, classes]."""
    bias: Floats
    """[classes]."""

    @classmethod
    def fit(cls, features: NDArray[np.floating[Any]], ids: NDArray[np.int64]) -> Self:
        """Fit to training images: features [images, d], and label ids."""
        values = np.asarray(features, np.float32)
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        scale = 1 / (deviation + _LEAST_DEVIATION * deviation.mean() + np.float32(_EPSILON))
        values = _normalize((values - mean) * scale)
        _, classes, counts = np.unique(ids, return_inverse=True, return_counts=True)
        center = values.mean(axis=0)
        sums = np.zeros((len(counts), values.shape[1]), np.float32)
        np.add.at(sums, classes, values)
        means = sums / counts[:, np.newaxis]
        values -= means[classes]
        variance = values.var() + _EPSILON
        away = (means - center).T
        if len(center) > _MOST_FEATURES:
            kernel = away / ((1 + _RIDGE) * variance)
        else:
            within = values.T @ values / len(values)
            within[np.diag_indices_from(within)] += _RIDGE * variance
            kernel = np.linalg.solve(within, away)
        bias = -((means + center).T * kernel).sum(axis=0) / 2
        return cls(mean, scale, kernel.astype(np.float32), bias.astype(np.float32))

    def score(self, features: NDArray[np.floating[Any]]) -> Floats:
        """Return the score of each image, [images]; it is high for known ones."""
        directions = _normalize((np.asarray(features, np.float32) - self.mean) * self.scale)
        scores: Floats = (directions @ self.kernel + self.bias).max(axis=1)
        return scores


class Known(tf.Module):
    """Computes the score within a graph, and decides by it."""

    def __init__(self, likeness: Likeness, threshold: float) -> None:
        """Take the least score of a known image."""
        super().__init__()
        self.threshold = threshold
        parts = (likeness.mean, likeness.scale, likeness.kernel, likeness.bias)
        # As constants, they would be in the graph of each signature.
        self._parts = [tf.Variable(part, trainable=False) for part in parts]

    def answer(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `known`, bool [batch], and `known_score`, float32 [batch].

        The logits, [batch, classes], must be of a `tf.function`.
        """
        mean, scale, kernel, bias = self._parts
        away = (find_features(logits) - mean) * scale
        length = tf.sqrt(tf.reduce_sum(away * away, axis=1, keepdims=True)) + _EPSILON
        score = tf.reduce_max(tf.matmul(away / length, kernel) + bias, axis=1)
        return {KNOWN_SCORE: score, KNOWN: score >= self.threshold}


def _normalize(values: Floats) -> Floats:
    scaled: Floats = values / (np.linalg.norm(values, axis=1, keepdims=True) + _EPSILON)
    return scaled


def find_features(logits: tf.Tensor) -> tf.Tensor | None:
    """Return the input of the last Dense layer, [batch, features]; None if there is none.

    Searches the graph rather than Keras's layers, which a user's network need not have.
    """
    tensor = logits
    while True:
        operation = tensor.op
        matrices = [x for x in operation.inputs if x.dtype.is_floating and x.shape.rank == 2]
        if operation.type == "MatMul" or operation.type in _CALLS:
            features = operation.inputs[0]
            is_matrix = features.dtype.is_floating and features.shape.rank == 2
            return features if is_matrix and features.shape[1] else None
        if len(matrices) != 1:
            return None
        [tensor] = matrices
