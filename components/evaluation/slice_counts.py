"""Counts the predictions of an evaluation in each slice: the metrics of the verdict and of TFMA."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from components.evaluation.config import EvaluationConfig
from components.metrics.metric_table import AUC
from components.metrics.prediction_file import read_prediction_batches, read_predictions
from components.metrics.predictions import (
    OVERALL,
    Counts,
    Flags,
    Ints,
    Predictions,
    PredictionStats,
    SliceKey,
    count_confusion,
    find_known,
    find_rows,
)
from components.metrics.score_metrics import mean_auc
from components.metrics.slices import make_readable

SliceValues = Mapping[SliceKey, Mapping[str, float]]
"""Slice → metric → value."""

Slices = Mapping[SliceKey, Sequence[int]]
"""Slice → rows of its examples."""

# Probabilities, 4 bytes each, that may be held in memory for the AUC of all slices.
_MOST_SCORES = 10_000_000


@dataclass(frozen=True)
class CountedModel:
    """The measurements of a model."""

    path: str
    """Path of the SavedModel."""
    values: SliceValues
    confusion: Mapping[SliceKey, Ints]
    """Slice → result of `count_confusion`."""


class CountedModels(NamedTuple):
    """The measurements of all models."""

    models: list[CountedModel]
    """The candidate and, if there is one, the current model."""
    compared: tuple[SliceValues, SliceValues] | None
    """Metrics of both on the rows `known`; None without any."""
    known: Ints
    """Rows of the examples whose labels all models know."""
    right: list[Flags]
    """Whether each model is right about each example."""


def measures_auc(config: EvaluationConfig, *, scores: int) -> bool:
    """Say whether to measure the AUC, for which all `scores` are held in memory."""
    return scores <= _MOST_SCORES or any(threshold.metric == AUC for threshold in config.thresholds)


def measure_models(
    evaluation_uri: str, config: EvaluationConfig, paths: Sequence[str], *, with_auc: bool
) -> CountedModels:
    """Measure the models on every slice, from the predictions of the evaluation.

    They are read in batches, so that memory does not grow with examples × classes.
    """
    parts: list[list[PredictionStats]] = []
    slicings: dict[str, list[str]] = {name: [] for name in config.slices}
    for batch in read_prediction_batches(evaluation_uri):
        parts.append([model.stats for model in (batch.candidate, batch.baseline) if model])
        for name, values in slicings.items():
            # Millions of images have a few values.
            values += map(sys.intern, make_readable(batch.slices[name]))
    stats = [PredictionStats.concatenate(of_model) for of_model in zip(*parts, strict=True)]
    slices: Slices = {OVERALL: range(len(stats[0].truth)), **find_rows(slicings)}
    predictions: list[Predictions | None] = [None, None]
    if with_auc:
        evaluated = read_predictions(evaluation_uri)
        predictions = [evaluated.candidate, evaluated.baseline]
    given = list(zip(paths, stats, predictions, strict=False))
    models = on_known = [_measure(*of_model, slices) for of_model in given]
    known = find_known(model.truth for model in stats)
    if len(known) < len(slices[OVERALL]):
        shared = {key: np.intersect1d(rows, known).tolist() for key, rows in slices.items()}
        shared = {key: rows for key, rows in shared.items() if rows}
        on_known = [_measure(*of_model, shared) for of_model in given]
    pair = (on_known[0].values, on_known[-1].values)
    compared = pair if len(models) > 1 and len(known) else None
    return CountedModels(models, compared, known, [of_model.right for of_model in stats])


def _measure(
    path: str, stats: PredictionStats, predictions: Predictions | None, slices: Slices
) -> CountedModel:
    """Measure a model on every slice; the AUC only if there are `predictions`."""
    values, confusion = {}, {}
    for key, rows in slices.items():
        of_slice = stats.take(rows)
        values[key] = {**Counts.of(of_slice).scalars(), "example_count": float(len(rows))}
        if predictions:
            values[key][AUC] = mean_auc(predictions.ids[rows], predictions.probabilities[rows])
        confusion[key] = count_confusion(of_slice)
    return CountedModel(path, values, confusion)
