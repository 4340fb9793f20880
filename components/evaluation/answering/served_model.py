"""An exported model, asked about whole batches of examples."""

from __future__ import annotations

import tensorflow as tf

from components.contract.example import ENCODED, LABEL_ID
from components.evaluation.metrics.predictions import Ints, Scores


class ServedModel:
    """The signatures of a SavedModel of ImageTrainer."""

    def __init__(self, path: str) -> None:
        """Load the model, which takes seconds.

        Args:
            path: folder or URL of the SavedModel.
        """
        # Signatures alone do not keep the model's variables alive.
        self._model = tf.saved_model.load(path)

    def answer(self, examples: tf.Tensor) -> tuple[Ints, Scores]:
        """Return the columns of the right answers, [examples], and what the model answers.

        Args:
            examples: string [examples], serialized.

        Returns:
            Columns, -1 for a label that the model does not know; probabilities, [examples,
            classes].
        """
        signatures = self._model.signatures
        scores = signatures["serving_examples"](examples=examples)["probabilities"]
        ids = signatures["transform_features"](examples=examples)[LABEL_ID]
        return ids.numpy().reshape(-1), scores.numpy()

    def ask_labels(self, examples: tf.Tensor) -> list[bytes]:
        """Return the labels of the columns, which come with the answer to an image."""
        spec = {ENCODED: tf.io.FixedLenFeature([], tf.string)}
        image = tf.io.parse_example(examples[:1], spec)[ENCODED]
        answer = self._model.signatures["serving_default"](image_bytes=image)
        labels: list[bytes] = answer["labels"][0].numpy().tolist()
        return labels
