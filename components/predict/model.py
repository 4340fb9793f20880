"""A SavedModel in memory that takes image files and returns labels with probabilities."""

import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from components.contract.errors import ModelError
from components.contract.model_files import KNOWN, KNOWN_SCORE

DEFAULT_SIGNATURE = "serving_default"
INPUT = "image_bytes"
"""The only input of a signature that takes image files."""

Ranking = tuple[tuple[str, float], ...]
"""Labels with their probabilities, most probable first."""


class Answer(NamedTuple):
    """The prediction for an image."""

    ranking: Ranking
    known: bool | None = None
    """Whether the image is like those of training; None if the model does not say."""
    known_score: float | None = None


_File = TypeVar("_File")
_Prediction = TypeVar("_Prediction")

# Prefixes of TensorFlow's messages, such as {{function_node __inference_f_12}} {{node map/while}}
# and (0) INVALID_ARGUMENT:
_OPERATION = re.compile(r"^(\(\d+\) [A-Z_]+: *|\{\{.*?\}\} *)+")
_MAX_REASON_LENGTH = 300
_REQUIRED_OUTPUTS = frozenset({"labels", "probabilities"})
# Newer models report undecodable images in this output instead of failing the batch.
_ERROR = "error"


class ImageModel:
    """A loaded SavedModel. It is thread-safe."""

    def __init__(self, folder: str) -> None:
        """Load the SavedModel in `folder`, or raise `ModelError`. This takes seconds."""
        import tensorflow as tf

        self.errors, self._tensor, self._string = tf.errors, tf.constant, tf.string
        try:
            # Signatures alone do not keep the model's variables alive.
            self._model = tf.saved_model.load(folder)
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"Cannot load a SavedModel from {folder}: {reason}") from error
        self._functions = {
            name: function
            for name, function in self._model.signatures.items()
            if [*function.structured_input_signature[1]] == [INPUT]
        }
        self.outputs = {
            name: [*function.structured_outputs] for name, function in self._functions.items()
        }
        """Signature → names of its outputs."""

    def predict(self, signature: str, files: Sequence[bytes]) -> dict[str, Any]:
        """Return each output of a signature, one of `outputs`, as an array with one row per file.

        TensorFlow may raise an `OpError`, of which `find_reason` extracts the reason.
        """
        images = self._tensor([*files], self._string)
        outputs = self._functions[signature](**{INPUT: images})
        return {name: value.numpy() for name, value in outputs.items()}


class RankingModel:
    """A served model that returns the most probable labels of each image. It is thread-safe."""

    def __init__(self, folder: str, *, top: int) -> None:
        """Load a pushed version, or the export of Trainer, from `folder`. This takes seconds.

        Raises `ModelError` if it cannot be loaded, or does not take image files. `top` is the
        number of labels for each image.
        """
        self._model, self._top = ImageModel(folder), top
        if not set(self._model.outputs.get(DEFAULT_SIGNATURE, ())) >= _REQUIRED_OUTPUTS:
            raise ModelError(
                f"{folder} does not take image files: it needs a signature {DEFAULT_SIGNATURE} "
                f"from {INPUT} to {' and '.join(sorted(_REQUIRED_OUTPUTS))}."
            )
        self._labels: list[str] = []

    def predict(self, images: Sequence[bytes]) -> list[Answer | str]:
        """Return the prediction for each image, or why the model cannot decode it.

        If a batch fails, because of one image or for lack of memory, it is bisected.
        """
        errors = self._model.errors
        expected = (errors.InvalidArgumentError, errors.ResourceExhaustedError)
        answers = predict_each(self._predict_batch, images, errors=expected)
        return [find_reason(a) if isinstance(a, Exception) else a for a in answers]

    def _predict_batch(self, images: Sequence[bytes]) -> list[Answer | str]:
        outputs = self._model.predict(DEFAULT_SIGNATURE, images)
        if not self._labels:
            self._labels = [label.decode() for label in outputs["labels"][0]]
        reasons = outputs.get(_ERROR, [b""] * len(images))
        nothing = [None] * len(images)
        known = outputs[KNOWN].tolist() if KNOWN in outputs else nothing
        scores = outputs[KNOWN_SCORE].tolist() if KNOWN_SCORE in outputs else nothing
        answers = zip(self._rank(outputs["probabilities"]), known, scores, strict=True)
        return [
            find_reason(reason.decode(errors="replace")) if reason else Answer(*answer)
            for reason, answer in zip(reasons, answers, strict=True)
        ]

    def _rank(self, probabilities: Any) -> list[Ranking]:
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._top]
        return [
            tuple((self._labels[column], float(row[column])) for column in columns)
            for row, columns in zip(probabilities, best, strict=True)
        ]


def predict_each(
    predict: Callable[[Sequence[_File]], Sequence[_Prediction]],
    files: Sequence[_File],
    *,
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> list[_Prediction | Exception]:
    """Predict all files in one batch; bisect a batch that fails, to find the files at fault.

    Return the prediction or exception of each file, in order. Exceptions other than `errors`, which
    a file or the size of a batch causes, propagate.
    """
    if not files:
        return []
    try:
        return [*predict(files)]
    except errors as error:
        if len(files) == 1:
            return [error]
    middle = len(files) // 2
    halves = (files[:middle], files[middle:])
    return [
        prediction for half in halves for prediction in predict_each(predict, half, errors=errors)
    ]


def import_quietly() -> None:
    """Import TensorFlow without its messages about GPU libraries and Python versions."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow  # noqa: F401


def find_reason(error: Exception | str) -> str:
    """Return the reason in a TensorFlow message, without operation names and tracebacks."""
    message = str(getattr(error, "message", error)).partition("[[")[0]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reason = _OPERATION.sub("", lines[-1]) if lines else ""
    return reason[:_MAX_REASON_LENGTH] or "the model cannot decode it"
