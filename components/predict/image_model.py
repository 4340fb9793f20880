"""A SavedModel in memory, asked by those of its signatures that take image files, nothing else."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

from components.contract.errors import ModelError

DEFAULT_SIGNATURE = "serving_default"
INPUT = "image_bytes"
"""The only input of a signature that takes image files."""

# How TensorFlow begins its messages, such as {{function_node __inference_f_12}} {{node map/while}}
# and (0) INVALID_ARGUMENT:
_OPERATION = re.compile(r"^(\(\d+\) [A-Z_]+: *|\{\{.*?\}\} *)+")
_LONGEST_REASON = 300


class ImageModel:
    """A loaded model; several threads may ask it."""

    def __init__(self, folder: str) -> None:
        """Load the SavedModel in `folder`, a path or a URL, which takes seconds.

        Raises:
            ModelError: it does not load.
        """
        import tensorflow as tf

        self.errors, self._tensor, self._string = tf.errors, tf.constant, tf.string
        try:
            # Signatures alone do not keep the model's variables alive.
            self._model = tf.saved_model.load(folder)
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"{folder} is not a SavedModel that loads: {reason}") from error
        self._functions = {
            name: function
            for name, function in self._model.signatures.items()
            if [*function.structured_input_signature[1]] == [INPUT]
        }
        self.outputs = {name: [*of.structured_outputs] for name, of in self._functions.items()}
        """Signature → names of its outputs."""

    def ask(self, signature: str, files: Sequence[bytes]) -> dict[str, Any]:
        """Return each output as an array with a row for each file.

        Raises:
            OpError: of TensorFlow; `find_reason` says what is wrong.
        """
        images = self._tensor([*files], self._string)
        outputs = self._functions[signature](**{INPUT: images})
        return {name: value.numpy() for name, value in outputs.items()}


def import_quietly() -> None:
    """Import TensorFlow without what it says of libraries for GPUs, and of Python's age."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow  # noqa: F401


def find_reason(error: Exception | str) -> str:
    """Return the line of a message of TensorFlow that says what is wrong.

    Around it are the names of operations, and where in the graph's code they are from.
    """
    message = str(getattr(error, "message", error)).partition("[[")[0]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reason = _OPERATION.sub("", lines[-1]) if lines else ""
    return reason[:_LONGEST_REASON] or "the model cannot read it"
