import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics

from components.metrics.classification_metrics import measure
from components.metrics.predictions import Predictions, PredictionStats
from tests.evaluation.predictions_sample import TABLE

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
