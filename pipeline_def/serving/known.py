"""The score that tells whether an image is like those of training.

It is the sum of scores in standard deviations from their mean over images of the eval split. The
energy (Liu et al., 2020, https://arxiv.org/abs/2010.03759) is high if some logit is. The relative
Mahalanobis distance (Ren et al., 2021, https://arxiv.org/abs/2106.09022) asks how much nearer the
features, the input of the last layer, are to the mean of a class than to that of all images. They
are scaled to unit length first (Mueller and Hein, 2025, https://arxiv.org/abs/2505.18032).
Directions in which the means of the classes do not differ cancel out of it. The residual is the
Mahalanobis distance in just those directions (after Wang et al., 2022,
https://arxiv.org/abs/2203.10807). Noise has a high energy but differs there; elsewhere it tells
little, so only unusual values count.
"""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

SCORE = (
    "the energy of the logits, plus the relative Mahalanobis distance of the features at unit "
    "length, minus unusual distances outside the directions that separate the classes"
)

# A function of its own hides the operations within it.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# A residual counts from so many standard deviations on, and so many times. With these the score was
# never behind the highest probability by more than 0.001 of AUROC, on average of the choices, on
# three kinds of networks; with all residuals and plain features, by 0.03 on ResNet-9.
_UNUSUAL, _TIMES = 1.0, 3.0

SCOPE = "known"
"""Begins the names of the operations of the score."""

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class KnownScore:
    """A fitted score."""

    center: Array
    """Mean features of all training images at unit length, [features]."""
    projection: Array
    """To axes in which each class has unit variance, [features, axes]."""
    means: Array
    """Of the classes, [classes, axes]."""
    shrinkage: Array
    """Variance between the classes divided by that of all images, [axes]."""
    origin: Array
    """Mean features of all training images, [features]."""
    outside: Array
    """To axes of unit variance in which the means of the classes are equal, [features, others]."""
    mean: Array = field(default_factory=lambda: np.zeros(3, np.float32))
    """Of energy, distance and residual, over images of the eval split."""
    deviation: Array = field(default_factory=lambda: np.ones(3, np.float32))
    """Their standard deviations."""
    threshold: float | None = None
    """Least score of a known image; None: there is no decision, and so no output."""

    def score(self, logits: tf.Tensor) -> tf.Tensor:
        """Return the score, float32 [batch], for logits [batch, classes] within a function.

        It is that of `add`, in few operations: for a small image they take longer than the numbers.
        """
        energy, distance, residual = self.deviation
        weights = self.shrinkage / distance
        offsets = (
            np.square(self.means).sum(axis=1) / distance + (self.mean / self.deviation)[:2].sum()
        )
        with tf.name_scope(SCOPE):
            features = features_or_logits(logits)
            at = tf.linalg.matmul(unit(features) - self.center, self.projection)
            near = tf.linalg.matmul(at, 2 * self.means.T / distance) - offsets
            known = tf.reduce_max(near, axis=1) - tf.reduce_sum(tf.square(at) * weights, axis=1)
            far = tf.linalg.matmul(features - self.origin, self.outside)
            limit = _UNUSUAL * residual - self.mean[2]
            strange = tf.nn.relu(tf.reduce_sum(tf.square(far), axis=1) - limit) * (
                _TIMES / residual
            )
            # Logits minus their logarithms of probabilities are the energy, in each column.
            energies = tf.reduce_max(logits - tf.nn.log_softmax(logits), axis=1) / energy
            return energies + known - strange

    def measure(self, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return energy, distance and residual, float32 [batch] each; higher means more alike."""
        features = features_or_logits(logits)
        at = tf.linalg.matmul(unit(features) - self.center, self.projection)
        # The squared distance to the mean of all minus that to the nearest class, where both have
        # the same term cancelled.
        near = 2 * tf.linalg.matmul(at, self.means.T) - np.square(self.means).sum(axis=1)
        distance = tf.reduce_max(near, axis=1) - tf.reduce_sum(tf.square(at) * self.shrinkage, 1)
        far = tf.linalg.matmul(features - self.origin, self.outside)
        residual = -tf.reduce_sum(tf.square(far), axis=1)
        return tf.reduce_logsumexp(logits, axis=1), distance, residual

    def standardize(self, parts: NDArray[np.float64]) -> Self:
        """Return the score in standard deviations of `parts`, those of `measure`, [images, 3]."""
        mean, deviation = parts.mean(axis=0), parts.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1)
        return replace(self, mean=mean.astype(np.float32), deviation=deviation.astype(np.float32))

    def add(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores, [images], of the parts that `measure` returns, [images, 3]."""
        energy, distance, residual = ((parts - self.mean) / self.deviation).T
        strange = _TIMES * np.minimum(residual + _UNUSUAL, 0)
        scores: NDArray[np.float64] = energy + distance + strange
        return scores


def unit(features: tf.Tensor) -> tf.Tensor:
    """Return features at unit length, [batch, features]; zeros stay zeros."""
    return tf.math.l2_normalize(features, axis=1)


def features_or_logits(logits: tf.Tensor) -> tf.Tensor:
    """Return the features; the logits of a network that does not end with a Dense layer."""
    features = find_features(logits)
    return logits if features is None else features


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
