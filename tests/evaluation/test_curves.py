import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics

from components.metrics import curves
from components.metrics.classification_metrics import compare_models, measure
from components.metrics.curves import Roc, trace_class, trace_roc
from components.metrics.predictions import Predictions, PredictionStats
from tests.evaluation.predictions_sample import (
    TABLE,
    as_evaluated,
    draw_predictions,
    make_labels,
    normalize,
    predict,
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
    of_class = trace_class(predictions, "class 001")
    assert average
    assert of_class
    assert average.positive == ("class 001" if classes == 2 else None)
    chosen = np.eye(classes, dtype=bool)[predictions.ids]
    column = predictions.labels.index("class 001")
    every = [column] if classes == 2 else list(range(classes))
    for roc, columns in ((average, every), (of_class.roc, [column])):
        truth, scores = chosen[:, columns], predictions.probabilities[:, columns]
        area = metrics.roc_auc_score(truth.ravel(), scores.ravel())
        assert roc.area == pytest.approx(area)
        thinned = metrics.auc(roc.false_positive_rate, roc.recall)
        assert thinned == pytest.approx(area, abs=2e-3)
        check_roc(roc)
    truth, scores = predictions.ids == column, predictions.probabilities[:, column]
    found = of_class.precision_recall
    assert len(found.recall) <= 100
    assert found.average == pytest.approx(metrics.average_precision_score(truth, scores))
    assert metrics.auc(found.recall, found.precision) == pytest.approx(found.average, abs=0.01)


def check_roc(roc: Roc) -> None:
    assert len(roc.recall) <= 100
    ends = [(roc.false_positive_rate[i], roc.recall[i]) for i in (0, -1)]
    assert ends == [(0, 0), (1, 1)]
    for rates, sign in ((roc.false_positive_rate, 1), (roc.recall, 1), (roc.thresholds, -1)):
        assert (sign * np.diff(rates) >= 0).all()
    assert roc.thresholds.max() == 1
    assert roc.thresholds.min() >= 0


def test_classes_whose_curves_show_nothing_have_none() -> None:
    comparison = compare_models(as_evaluated(TABLE["two classes"]))
    assert [of.label for of in comparison.curves] == ["class 001"]
    # Perfectly separated ones.
    comparison = compare_models(as_evaluated(predict("abcd", "aaabbbcccddd", "aaabbbcccddc")))
    assert comparison.metrics.auc[:2].tolist() == [1, 1]
    assert [of.label for of in comparison.curves] == ["d", "c"]
    comparison = compare_models(as_evaluated(predict("abc", truth="bbbb", said="abba")))
    assert comparison.metrics.roc is None
    assert comparison.curves == ()
    assert np.isnan(comparison.metrics.scalars["auc"])


def test_curves_show_the_classes_with_the_smallest_areas() -> None:
    sureness = np.tile([0.3, 3, 1], 10)[:, np.newaxis] * np.eye(30)
    ids = np.repeat(np.arange(29), 20)
    logits = np.random.default_rng(0).normal(0, 1, (580, 30)) + sureness[ids]
    probabilities = normalize(np.exp(logits)).astype(np.float32)
    comparison = compare_models(as_evaluated(Predictions(make_labels(30), ids, probabilities)))
    shown = [of.label for of in comparison.curves]
    auc = dict(zip(comparison.metrics.labels, comparison.metrics.auc, strict=True))
    known = sorted((label for label in auc if not np.isnan(auc[label])), key=auc.__getitem__)
    assert len(known) == 29
    assert shown == known[:6]
    assert [of.roc.area for of in comparison.curves] == pytest.approx([auc[of] for of in shown])


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
