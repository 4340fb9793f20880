"""A SavedModel as it is served: image bytes in, labels and probabilities out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from components.contract.errors import ModelError
from components.predict.halving import ask_each
from components.predict.outcome import Ranking

_SIGNATURE = "serving_default"
_INPUT = "image_bytes"
_NEEDED = frozenset({"labels", "probabilities"})
# Of models that answer the other images of a batch in which one cannot be decoded.
_ERROR = "error"

# How TensorFlow begins its messages, such as {{function_node __inference_f_12}} {{node map/while}}.
_OPERATION = re.compile(r"^(\{\{.*?\}\} ?)+")


class ServedModel:
    """A loaded model; several threads may ask it."""

    def __init__(self, folder: str, *, top: int) -> None:
        """Load the SavedModel in `folder`, a path or a URL, which takes seconds.

        Args:
            folder: of a pushed version, or what Trainer has exported.
            top: labels for each image.

        Raises:
            ModelError: it is none of ours.
        """
        import tensorflow as tf

        self._tf = tf
        self._top = top
        try:
            # Signatures alone do not keep the model's variables alive.
            self._model = tf.saved_model.load(folder)
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"{folder} is not a SavedModel that loads: {reason}") from error
        self._ask = self._model.signatures.get(_SIGNATURE)
        if self._ask is None or not _fits(self._ask):
            raise ModelError(
                f"{folder} does not take image files: it needs a signature {_SIGNATURE} from "
                f"{_INPUT} to {' and '.join(sorted(_NEEDED))}."
            )
        self._labels: list[str] = []

    def ask(self, images: Sequence[bytes]) -> list[Ranking | str]:
        """Return the most probable labels of each image, or why the model cannot read it.

        Where one image fails a whole batch, or the batch does not fit into memory, each half is
        asked for by itself.
        """
        errors = self._tf.errors
        expected = (errors.InvalidArgumentError, errors.ResourceExhaustedError)
        found = ask_each(self._ask_together, images, errors=expected)
        return [
            _explain(str(getattr(one, "message", one))) if isinstance(one, Exception) else one
            for one in found
        ]

    def _ask_together(self, images: Sequence[bytes]) -> list[Ranking | str]:
        answer = self._ask(**{_INPUT: self._tf.constant(list(images), self._tf.string)})
        if not self._labels:
            self._labels = [label.decode() for label in answer["labels"][0].numpy()]
        reasons = answer[_ERROR].numpy() if _ERROR in answer else [b""] * len(images)
        rankings = self._rank(answer["probabilities"].numpy())
        return [
            _explain(reason.decode(errors="replace")) if reason else ranking
            for reason, ranking in zip(reasons, rankings, strict=True)
        ]

    def _rank(self, probabilities: Any) -> list[Ranking]:
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._top]
        return [
            tuple((self._labels[column], float(row[column])) for column in columns)
            for row, columns in zip(probabilities, best, strict=True)
        ]


def _fits(signature: Any) -> bool:
    _, inputs = signature.structured_input_signature
    return set(inputs) == {_INPUT} and signature.structured_outputs.keys() >= _NEEDED


def _explain(message: str) -> str:
    """Return the line of a message of TensorFlow that says what is wrong.

    Around it are the names of operations, and where in the graph's code they are from.
    """
    lines = [line.strip() for line in message.partition("[[")[0].splitlines() if line.strip()]
    return _OPERATION.sub("", lines[-1]) if lines else "the model cannot read it"
