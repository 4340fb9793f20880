"""The predictions of two runs for the images that both evaluated.

Images are paired by content: files may have been renamed or moved.
"""

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from components.metrics.predictions import Ints, Predictions


@dataclass(frozen=True, eq=False)
class RunPredictions:
    """The predictions of a run for its images."""

    filenames: tuple[str, ...]
    labels: tuple[str, ...]
    """The true label of each image."""
    predictions: Predictions
    keys: tuple[str, ...]
    """Digest of the content of each image."""
    examples: str
    """URI of ImageExampleGen's examples."""
    split: str

    def take(self, rows: Sequence[int]) -> Self:
        """Return the evaluation of some of the images."""
        model = self.predictions
        return replace(
            self,
            filenames=tuple(self.filenames[row] for row in rows),
            labels=tuple(self.labels[row] for row in rows),
            predictions=Predictions(model.labels, model.ids[rows], model.probabilities[rows]),
            keys=tuple(self.keys[row] for row in rows),
        )

    def relabel(self, labels: tuple[str, ...]) -> Self:
        """Return the same predictions, judged by other labels of the images."""
        model = self.predictions
        columns = {label: column for column, label in enumerate(model.labels)}
        ids: Ints = np.array([columns.get(label, -1) for label in labels], np.int64)
        return replace(
            self, labels=labels, predictions=Predictions(model.labels, ids, model.probabilities)
        )


@dataclass(frozen=True)
class Overlap:
    """Numbers of the images that the runs share or not."""

    shared: int
    """In both runs with the same label."""
    relabelled: int
    """In both runs with different labels."""
    only_first: int
    """In the first run only."""
    only_second: int

    @property
    def both(self) -> int:
        """Number of images in both runs, with any label."""
        return self.shared + self.relabelled

    @property
    def is_whole(self) -> bool:
        """Whether both runs evaluated the same images with the same labels."""
        return not (self.relabelled or self.only_first or self.only_second)


def pair(
    first: RunPredictions, second: RunPredictions, *, newest: Literal[0, 1] = 1
) -> tuple[RunPredictions, RunPredictions, Overlap]:
    """Return both evaluations of the images with the same content, row by row.

    Both are judged by the labels of run `newest`. The `shared` images, whose label is the same in
    both runs, come first. Copies of an image pair one by one.
    """
    rows, others = _number(first), _number(second)
    same = sorted(rows.keys() & others.keys())
    left = _by_content(rows.keys() - others.keys())
    right = _by_content(others.keys() - rows.keys())
    relabelled = [
        found
        for content in sorted(left.keys() & right.keys())
        for found in zip(left[content], right[content], strict=False)
    ]
    pairs = [*((image, image) for image in same), *relabelled]
    shared = (
        first.take([rows[left_image] for left_image, _ in pairs]),
        second.take([others[right_image] for _, right_image in pairs]),
    )
    labels = shared[newest].labels
    overlap = Overlap(
        shared=len(same),
        relabelled=len(relabelled),
        only_first=len(rows) - len(pairs),
        only_second=len(others) - len(pairs),
    )
    return shared[0].relabel(labels), shared[1].relabel(labels), overlap


_Image = tuple[str, str, int]
"""Content, label, and number of the copy."""


def _by_content(images: Iterable[_Image]) -> dict[str, list[_Image]]:
    found: dict[str, list[_Image]] = {}
    for image in sorted(images):
        found.setdefault(image[0], []).append(image)
    return found


def _number(evaluation: RunPredictions) -> dict[_Image, int]:
    """Return the row of each image by content, label, and number of the copy."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    rows = {}
    for row, image in enumerate(zip(evaluation.keys, evaluation.labels, strict=True)):
        rows[*image, seen[image]] = row
        seen[image] += 1
    return rows
