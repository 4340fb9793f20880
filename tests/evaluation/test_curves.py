import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics

from components.metrics import curves
from components.metrics.classification_metrics import measure
from components.metrics.curves import Roc, trace_roc
from components.metrics.predictions import Predictions, PredictionStats
from tests.evaluation.predictions_sample import (
    TABLE,
    draw_predictions,
)

pytestmark = pytest.mark.usefixtures("few_resamples")


@pytest.mark.parametrize("digits", [7, 1], ids=["as they are", "often equal"])
@pytest.mark.parametrize("predictions", TABLE.values(), ids=TABLE.keys())
def test_areas_are_those_of_scikit_learn(predictions: Predictions, digits: int) -> None:
    rounded = predictions.probabilities.round(digits)
    predictions = replace(predictions, probabilities=rounded)
    measured = measure(predictions)
    for place, label in enumerate(measured.labels):
        column = predictions.labels.index(label)
        truth, scores = predictions.ids == column, predictions.probabilities[:, column]
        found = measured.auc[place], measured.average_precision[place]
        if truth.any():
            expected = metrics.roc_auc_score, metrics.average_precision_score
            assert found == pytest.approx([score(truth, scores) for score in expected], abs=1e-6)
        else:
            assert np.isnan(found).all()


@pytest.mark.parametrize("classes", [2, 4, 30])
def test_roc_curves_are_thinned_to_their_shape(classes: int) -> None:
    predictions = draw_predictions([200] * classes)
    average = measure(predictions).roc
    assert average
    assert average.positive == ("class 001" if classes == 2 else None)
    chosen = np.eye(classes, dtype=bool)[predictions.ids]
    column = predictions.labels.index("class 001")
    every = [column] if classes == 2 else list(range(classes))
    truth, scores = chosen[:, every], predictions.probabilities[:, every]
    area = metrics.roc_auc_score(truth.ravel(), scores.ravel())
    assert average.area == pytest.approx(area)
    thinned = metrics.auc(average.false_positive_rate, average.recall)
    assert thinned == pytest.approx(area, abs=2e-3)
    check_roc(average)


def check_roc(roc: Roc) -> None:
    assert len(roc.recall) <= 100
    ends = [(roc.false_positive_rate[i], roc.recall[i]) for i in (0, -1)]
    assert ends == [(0, 0), (1, 1)]
    for rates, sign in ((roc.false_positive_rate, 1), (roc.recall, 1), (roc.thresholds, -1)):
        assert (sign * np.diff(rates) >= 0).all()
    assert roc.thresholds.max() == 1
    assert roc.thresholds.min() >= 0


def test_a_micro_average_of_too_many_scores_is_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    predictions = draw_predictions([1_000] * 20)
    whole = trace_roc(predictions)
    monkeypatch.setattr(curves, "_MOST_SCORES", 40_000)
    sampled, again = trace_roc(predictions), trace_roc(predictions)
    assert whole
    assert sampled
    assert again
    assert sampled.area == again.area != whole.area
    assert sampled.area == pytest.approx(whole.area, abs=0.01)
    check_roc(sampled)


def test_statistics_of_blocks_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).random((1_000, 500), np.float32).round(4)
    ids = np.arange(1_000) % 501 - 1
    whole = PredictionStats.of(ids, scores)
    monkeypatch.setattr("components.metrics.predictions._BLOCK", 30)
    tracemalloc.start()
    of_blocks = PredictionStats.of(ids, scores)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < scores.nbytes / 2
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(vars(of_blocks)[name], value)
