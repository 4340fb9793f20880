"""The models of two runs on the images that both evaluated.

Images are paired by content: files may have been renamed or moved.
"""

import collections
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np

from components.contract.confidence import Interval
from components.images.picture import Picture
from components.metrics.classification_metrics import (
    ModelMetrics,
    SliceMetrics,
    measure,
    measure_slices,
)
from components.metrics.intervals import estimate_intervals
from components.metrics.metric_table import METRICS
from components.metrics.predictions import Flags, Ints, Predictions
from components.metrics.proof import Change


@dataclass(frozen=True, eq=False)
class Evaluation:
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
    first: Evaluation, second: Evaluation, *, newest: Literal[0, 1] = 1
) -> tuple[Evaluation, Evaluation, Overlap]:
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
    pairs = [*((of, of) for of in same), *relabelled]
    shared = (
        first.take([rows[of] for of, _ in pairs]),
        second.take([others[of] for _, of in pairs]),
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


def _number(evaluation: Evaluation) -> dict[_Image, int]:
    """Return the row of each image by content, label, and number of the copy."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    rows = {}
    for row, image in enumerate(zip(evaluation.keys, evaluation.labels, strict=True)):
        rows[*image, seen[image]] = row
        seen[image] += 1
    return rows


ReadPictures = Callable[[Evaluation, Collection[str]], Mapping[str, Picture | None]]
"""Maps file names of an evaluation to thumbnails of its images."""


class MetricPair(NamedTuple):
    """A metric of both models; NaN where it is not defined."""

    metric: str
    first: float
    second: float
    change: Interval | None
    """Interval of second minus first on the same images, if there is one."""


class PredictedLabel(NamedTuple):
    """The prediction of a model for an image, and its probability, 0 to 1."""

    label: str
    probability: float


@dataclass(frozen=True)
class ChangedImage:
    """An image that exactly one of the models is right about."""

    filename: str
    """Path among the images of the second run."""
    label: str
    first: PredictedLabel
    second: PredictedLabel
    picture: Picture | None


@dataclass(frozen=True)
class Changes:
    """Images whose predictions changed in one direction."""

    total: int
    shown: tuple[ChangedImage, ...]
    """Those that both models are most confident about come first."""


@dataclass(frozen=True)
class Paired:
    """Both models on the images that they share."""

    change: Change
    """The accuracy of the second model against that of the first."""
    unchanged: Change | None
    """The same on the images whose label is the same in both runs; None if there are none."""
    metrics: tuple[MetricPair, ...]
    recalls: tuple[SliceMetrics, ...]
    """Recall of each class by the second model, against the first; the largest loss first."""
    lost: Changes
    """From right to wrong; `won` is the reverse."""
    won: Changes


def measure_pairs(
    first: Evaluation, second: Evaluation, *, same: int, most: int, read_pictures: ReadPictures
) -> Paired:
    """Measure both models on the same images, of which up to `most` are shown each way.

    The first `same` images have the same label in both runs.
    """
    before, after = first.predictions, second.predictions
    right, now_right = before.stats.right, after.stats.right
    _, changes = estimate_intervals(after, before, seed=0)
    recalls = measure_slices({"class": second.labels}, now_right, right)

    def show(changed: Flags) -> Changes:
        return _show_changes(first, second, changed, most, read_pictures)

    return Paired(
        change=Change.of(right, now_right),
        unchanged=Change.of(right[:same], now_right[:same]) if same else None,
        metrics=pair_metrics(measure(before), measure(after), changes),
        recalls=tuple(sorted(recalls, key=lambda part: part.accuracy - (part.baseline or 0.0))),
        lost=show(right & ~now_right),
        won=show(now_right & ~right),
    )


def pair_metrics(
    first: ModelMetrics, second: ModelMetrics, changes: Mapping[str, Interval]
) -> tuple[MetricPair, ...]:
    """Pair the metrics, without those that are always 1 or defined for neither model."""
    classes = max(len(first.labels), len(second.labels))
    pairs = []
    for name, metric in METRICS.items():
        values = first.scalars[name], second.scalars[name]
        if metric.top < classes and not all(map(math.isnan, values)):
            pairs.append(MetricPair(name, *values, changes.get(name)))
    return tuple(pairs)


def _show_changes(
    first: Evaluation, second: Evaluation, changed: Flags, most: int, read_pictures: ReadPictures
) -> Changes:
    """Show the images for which the less confident of both models is most confident."""
    [rows] = np.nonzero(changed)
    sure = np.minimum(*(of.predictions.stats.confidence[rows] for of in (first, second)))
    chosen = rows[np.argsort(-sure, kind="stable")[:most]].tolist()
    pictures = read_pictures(second, [second.filenames[row] for row in chosen])
    shown = [
        ChangedImage(
            filename=second.filenames[row],
            label=second.labels[row],
            first=_predict(first.predictions, row),
            second=_predict(second.predictions, row),
            picture=pictures.get(second.filenames[row]),
        )
        for row in chosen
    ]
    return Changes(len(rows), tuple(shown))


def _predict(model: Predictions, row: int) -> PredictedLabel:
    label = model.labels[model.stats.predicted[row]]
    return PredictedLabel(label, float(model.stats.confidence[row]))
