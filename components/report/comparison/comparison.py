"""What two runs have made of the images that both were evaluated on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

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
from components.report.comparison.facts import (
    Answer,
    ChangedImage,
    Changes,
    ComparedRun,
    ComparisonFacts,
    MetricPair,
    Paired,
)
from components.report.comparison.pairing import Evaluation, Pairs, pair
from components.report.comparison.verdict import judge_runs

ReadPictures = Callable[[Evaluation, Collection[str]], Mapping[str, Picture | None]]
"""From file names of an evaluation to thumbnails of its images."""


def compare_runs(
    runs: tuple[ComparedRun, ComparedRun],
    evaluations: tuple[Evaluation, Evaluation],
    *,
    most: int,
    read_pictures: ReadPictures,
) -> ComparisonFacts:
    """Compare the second run with the first, on the images that both were evaluated on.

    Args:
        runs: what was run.
        evaluations: what their models answered.
        most: how many changed images to show in each direction.
        read_pictures: called once for each direction.
    """
    pairs = pair(*evaluations)
    paired = None
    if pairs.overlap.shared:
        paired = _measure_pairs(evaluations, pairs, most, read_pictures)
    outcome, headline, reasons = judge_runs(runs, pairs.overlap, paired)
    first, second = (measure(evaluation.answers) for evaluation in evaluations)
    return ComparisonFacts(
        first=runs[0],
        second=runs[1],
        overlap=pairs.overlap,
        paired=paired,
        whole=_pair_metrics(first, second, {}),
        outcome=outcome,
        headline=headline,
        reasons=reasons,
    )


def _measure_pairs(
    evaluations: tuple[Evaluation, Evaluation], pairs: Pairs, most: int, read: ReadPictures
) -> Paired:
    first, second = evaluations
    before, after = _take(first.answers, pairs.first), _take(second.answers, pairs.second)
    right, now_right = before.stats.right, after.stats.right
    _, changes = estimate_intervals(after, before, seed=0)
    names = tuple(second.labels[row] for row in pairs.second.tolist())

    def show(changed: Flags) -> Changes:
        return _show_changes(evaluations, pairs, changed, most, read)

    return Paired(
        accuracies=(float(right.mean()), float(now_right.mean())),
        change=paired_interval(now_right, right),
        metrics=_pair_metrics(measure(before), measure(after), changes),
        recalls=_sort_recalls(measure_slices({"class": names}, now_right, right)),
        lost=show(right & ~now_right),
        won=show(now_right & ~right),
    )


def _take(predictions: Predictions, rows: Ints) -> Predictions:
    return Predictions(predictions.labels, predictions.ids[rows], predictions.probabilities[rows])


def _pair_metrics(
    first: ModelMetrics, second: ModelMetrics, changes: Mapping[str, Interval]
) -> tuple[MetricPair, ...]:
    """Leave out what is 1 whatever the models answer, and what is defined for neither."""
    classes = max(len(first.labels), len(second.labels))
    pairs = []
    for metric in METRICS:
        values = first.scalars[metric], second.scalars[metric]
        if METRICS[metric].top < classes and not all(map(math.isnan, values)):
            pairs.append(MetricPair(metric, *values, changes.get(metric)))
    return tuple(pairs)


def _sort_recalls(recalls: tuple[SliceMetrics, ...]) -> tuple[SliceMetrics, ...]:
    """Put the class that lost most first."""
    return tuple(sorted(recalls, key=lambda part: part.accuracy - (part.baseline or 0.0)))


def _show_changes(
    evaluations: tuple[Evaluation, Evaluation],
    pairs: Pairs,
    changed: Flags,
    most: int,
    read: ReadPictures,
) -> Changes:
    """Show the images of which the less sure of both models is most sure."""
    first, second = evaluations
    [places] = np.nonzero(changed)
    rows = pairs.first[places], pairs.second[places]
    sure = np.minimum(
        first.answers.stats.confidence[rows[0]], second.answers.stats.confidence[rows[1]]
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
                first=_answer(first, before),
                second=_answer(second, after),
                picture=pictures.get(name),
            )
            for before, after in chosen
        ),
    )


def _answer(evaluation: Evaluation, row: int) -> Answer:
    predictions = evaluation.answers
    column = int(predictions.probabilities[row].argmax())
    return Answer(predictions.labels[column], float(predictions.stats.confidence[row]))
