"""A SavedModel as it is served: image bytes in, labels and probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from components.contract.errors import ModelError
from components.predict.halving import ask_each
from components.predict.image_model import DEFAULT_SIGNATURE, INPUT, ImageModel, find_reason
from components.predict.outcome import Ranking

_NEEDED = frozenset({"labels", "probabilities"})
# Of models that answer the other images of a batch in which one cannot be decoded.
_ERROR = "error"


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
        self._model, self._top = ImageModel(folder), top
        if not set(self._model.outputs.get(DEFAULT_SIGNATURE, ())) >= _NEEDED:
            raise ModelError(
                f"{folder} does not take image files: it needs a signature {DEFAULT_SIGNATURE} "
                f"from {INPUT} to {' and '.join(sorted(_NEEDED))}."
            )
        self._labels: list[str] = []

    def ask(self, images: Sequence[bytes]) -> list[Ranking | str]:
        """Return the most probable labels of each image, or why the model cannot read it.

        Where one image fails a whole batch, or the batch does not fit into memory, each half is
        asked for by itself.
        """
        errors = self._model.errors
        expected = (errors.InvalidArgumentError, errors.ResourceExhaustedError)
        found = ask_each(self._ask_together, images, errors=expected)
        return [find_reason(one) if isinstance(one, Exception) else one for one in found]

    def _ask_together(self, images: Sequence[bytes]) -> list[Ranking | str]:
        answer = self._model.ask(DEFAULT_SIGNATURE, images)
        if not self._labels:
            self._labels = [label.decode() for label in answer["labels"][0]]
        reasons = answer.get(_ERROR, [b""] * len(images))
        rankings = self._rank(answer["probabilities"])
        return [
            find_reason(reason.decode(errors="replace")) if reason else ranking
            for reason, ranking in zip(reasons, rankings, strict=True)
        ]

    def _rank(self, probabilities: Any) -> list[Ranking]:
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._top]
        return [
            tuple((self._labels[column], float(row[column])) for column in columns)
            for row, columns in zip(probabilities, best, strict=True)
        ]
