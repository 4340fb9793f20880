"""The models of two runs on the images that both evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from components.evaluation.metrics.classification_metrics import ModelMetrics, measure
from components.evaluation.metrics.intervals import (
    Interval,
    estimate_intervals,
    paired_interval,
)
from components.evaluation.metrics.metric_table import METRICS
from components.evaluation.metrics.predictions import Flags, Ints, Predictions
from components.evaluation.metrics.slice_metrics import SliceMetrics, measure_slices
from components.images.picture import Picture
from components.report.comparison.evaluations import Evaluation, Pairs

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
    """The prediction of a model for an image."""

    label: str
    probability: float
    """0 to 1."""


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

    accuracies: tuple[float, float]
    change: Interval
    """Interval of the second accuracy minus the first."""
    metrics: tuple[MetricPair, ...]
    recalls: tuple[SliceMetrics, ...]
    """Recall of each class by the second model, against the first; the largest loss first."""
    lost: Changes
    """From right to wrong; `won` is the reverse."""
    won: Changes

    @property
    def difference(self) -> float:
        """The second accuracy minus the first."""
        return self.accuracies[1] - self.accuracies[0]


def measure_pairs(
    evaluations: tuple[Evaluation, Evaluation], pairs: Pairs, most: int, read: ReadPictures
) -> Paired:
    """Measure both models on the shared images."""
    first, second = evaluations
    before, after = _take(first.predictions, pairs.first), _take(second.predictions, pairs.second)
    right, now_right = before.stats.right, after.stats.right
    _, changes = estimate_intervals(after, before, seed=0)
    names = tuple(second.labels[row] for row in pairs.second.tolist())
    recalls = measure_slices({"class": names}, now_right, right)

    def show(changed: Flags) -> Changes:
        return _show_changes(evaluations, pairs, changed, most, read)

    return Paired(
        accuracies=(float(right.mean()), float(now_right.mean())),
        change=paired_interval(now_right, right),
        metrics=pair_metrics(measure(before), measure(after), changes),
        recalls=tuple(sorted(recalls, key=lambda part: part.accuracy - (part.baseline or 0.0))),
        lost=show(right & ~now_right),
        won=show(now_right & ~right),
    )


def _take(predictions: Predictions, rows: Ints) -> Predictions:
    return Predictions(predictions.labels, predictions.ids[rows], predictions.probabilities[rows])


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
    evaluations: tuple[Evaluation, Evaluation],
    pairs: Pairs,
    changed: Flags,
    most: int,
    read: ReadPictures,
) -> Changes:
    """Show the images for which the less confident of both models is most confident."""
    first, second = evaluations
    [places] = np.nonzero(changed)
    rows = pairs.first[places], pairs.second[places]
    sure = np.minimum(
        first.predictions.stats.confidence[rows[0]], second.predictions.stats.confidence[rows[1]]
    )
    order = np.argsort(-sure, kind="stable")[:most]
    chosen = list(zip(*(of[order].tolist() for of in rows), strict=True))
    pictures = read(second, [second.evaluated.filenames[row] for _, row in chosen])
    return Changes(
        len(places),
        tuple(
            ChangedImage(
                filename=(name := second.evaluated.filenames[after]),
                label=second.labels[after],
                first=_predict(first, before),
                second=_predict(second, after),
                picture=pictures.get(name),
            )
            for before, after in chosen
        ),
    )


def _predict(evaluation: Evaluation, row: int) -> PredictedLabel:
    predictions = evaluation.predictions
    column = int(predictions.probabilities[row].argmax())
    return PredictedLabel(predictions.labels[column], float(predictions.stats.confidence[row]))
