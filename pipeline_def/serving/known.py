"""The score that tells whether an image is like those of training.

It is the sum of two scores, each in standard deviations from its mean over images of the eval
split. The energy (Liu et al., 2020, https://arxiv.org/abs/2010.03759) is high if some logit is. The
relative Mahalanobis distance (Ren et al., 2021, https://arxiv.org/abs/2106.09022) compares the
features, the input of the last layer, with those of training images: how much nearer are they to
the mean of a class than to the mean of all images? Directions in which the means of the classes do
not differ cancel out, so it takes no more than another last layer.
"""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

SCORE = "energy of the logits plus relative Mahalanobis distance of the features"

# A function of its own hides the operations within it.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class KnownScore:
    """A fitted score."""

    center: Array
    """Mean features of all training images, [features]."""
    projection: Array
    """To axes in which each class has unit variance, [features, axes]."""
    means: Array
    """Of the classes, [classes, axes]."""
    shrinkage: Array
    """Variance between the classes divided by that of all images, [axes]."""
    mean: Array = field(default_factory=lambda: np.zeros(2, np.float32))
    """Of energy and distance, over images of the eval split."""
    deviation: Array = field(default_factory=lambda: np.ones(2, np.float32))
    """Standard deviations of energy and distance."""
    threshold: float | None = None
    """Least score of a known image; None: there is no decision, and so no output."""

    def score(self, logits: tf.Tensor) -> tf.Tensor:
        """Return the score, float32 [batch], for logits [batch, classes] within a function."""
        parts = tf.stack(self.measure(logits), axis=1)
        return tf.reduce_sum((parts - self.mean) / self.deviation, axis=1)

    def measure(self, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return energy and relative distance, float32 [batch] each; higher means more alike."""
        at = tf.linalg.matmul(features_or_logits(logits) - self.center, self.projection)
        # The squared distance to the mean of all minus that to the nearest class, where both have
        # the same term cancelled.
        near = 2 * tf.linalg.matmul(at, self.means.T) - np.square(self.means).sum(axis=1)
        distance = tf.reduce_max(near, axis=1) - tf.reduce_sum(tf.square(at) * self.shrinkage, 1)
        return tf.reduce_logsumexp(logits, axis=1), distance

    def standardize(self, parts: NDArray[np.float64]) -> Self:
        """Return the score in standard deviations of `parts`, energy and distance, [images, 2]."""
        mean, deviation = parts.mean(axis=0), parts.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1)
        return replace(self, mean=mean.astype(np.float32), deviation=deviation.astype(np.float32))

    def add(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores, [images], of energies and distances, [images, 2]."""
        scores: NDArray[np.float64] = ((parts - self.mean) / self.deviation).sum(axis=1)
        return scores


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
