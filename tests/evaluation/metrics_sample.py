"""Comparisons of drawn predictions, for reports."""

import functools
from unittest.mock import patch

import numpy as np

from components.metrics import intervals
from components.metrics.classification_metrics import (
    Comparison,
    ModelMetrics,
    compare_models,
    measure,
)
from components.metrics.predictions import Ints, Predictions
from tests.evaluation.predictions_sample import as_evaluated, predict


def measure_confusion(labels: tuple[str, ...], confusion: Ints) -> ModelMetrics:
    """Measure a model that is sure of every prediction, from its confusion matrix."""
    pairs = np.repeat(np.argwhere(confusion), confusion[confusion > 0], axis=0)
    truth, said = ([labels[number] for number in column] for column in pairs.T)
    return measure(predict(labels, truth, said))


def draw_answers(
    labels: tuple[str, ...], each: int, *, accuracy: float, absent: int = 0, seed: int = 0
) -> Predictions:
    """Draw predictions for `each` examples per class but the last `absent`; some are harder."""
    random = np.random.default_rng(seed)
    classes = len(labels) - absent
    truth = np.repeat(np.arange(classes), each)
    hard = np.clip(accuracy + random.normal(0, (1 - accuracy) / 2, classes), 0, 1)
    wrong = (truth + random.geometric(0.4, len(truth))) % classes
    said = np.where(random.random(len(truth)) < hard[truth], truth, wrong)
    scores = random.random((len(truth), len(labels)))
    rows, sure = np.arange(len(truth)), classes * random.uniform(2, 20, len(truth))
    # Of a mistake, the true class comes second.
    scores[rows, truth] = sure / 3
    scores[rows, said] = sure
    probabilities = scores / scores.sum(axis=1, keepdims=True)
    return Predictions(labels, truth, probabilities.astype(np.float32))


@functools.cache
def make_comparison(
    labels: tuple[str, ...], *, each: int, accuracy: float, compared: bool = True, absent: int = 0
) -> Comparison:
    candidate = draw_answers(labels, each, accuracy=accuracy, absent=absent)
    baseline = draw_answers(labels, each, accuracy=accuracy - 0.03, absent=absent, seed=1)
    sizes = ("under 32 px", "32 to 63 px", "64 to 127 px", "1024 px and more")
    rows = range(len(candidate.ids))
    slices = {
        "class": tuple(labels[number] for number in candidate.ids),
        "format": tuple(("gif", "jpeg", "png")[row % 3] for row in rows),
        "size": tuple(sizes[row % 4] for row in rows),
    }
    with patch.multiple(intervals, _MOST_RESAMPLES=50, _LEAST_RESAMPLES=50):
        return compare_models(as_evaluated(candidate, baseline if compared else None, slices))
