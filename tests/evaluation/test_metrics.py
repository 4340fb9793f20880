import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics

from components.metrics.classification_metrics import compare_models, measure
from components.metrics.metric_table import METRICS
from components.metrics.predictions import Floats, Ints, Predictions, PredictionStats
from tests.evaluation.predictions_sample import (
    TABLE,
    as_evaluated,
    draw_predictions,
    normalize,
    predict,
)

pytestmark = pytest.mark.usefixtures("few_resamples")

on_table = pytest.mark.parametrize("predictions", TABLE.values(), ids=TABLE.keys())


def ece_of(ids: Ints, probabilities: Floats) -> float:
    """Guo et al. 2017, equation 3, as it stands there."""
    total = 0.0
    for lower in range(15):
        chosen = [
            (row.max(), int(row.argmax()) == truth)
            for truth, row in zip(ids, probabilities, strict=True)
            if lower / 15 < row.max() <= (lower + 1) / 15
        ]
        if chosen:
            confidence, accuracy = np.mean(chosen, axis=0)
            total += len(chosen) / len(ids) * abs(accuracy - confidence)
    return total


@on_table
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_scalars_are_those_of_scikit_learn(predictions: Predictions) -> None:
    ids, scores = predictions.ids, normalize(predictions.probabilities)
    predicted = scores.argmax(axis=1)
    macro = metrics.precision_recall_fscore_support(
        ids, predicted, average="macro", zero_division=0
    )
    columns = range(len(predictions.labels))
    expected = {
        "accuracy": metrics.accuracy_score(ids, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(ids, predicted),
        "macro_precision": macro[0],
        "macro_f1": macro[2],
        "auc": np.mean([metrics.roc_auc_score(ids == c, scores[:, c]) for c in set(ids)]),
        "ece": ece_of(ids, scores),
        "loss": metrics.log_loss(ids, scores, labels=columns),
    }
    few = len(columns) <= 5
    expected["top_5_accuracy"] = (
        1 if few else metrics.top_k_accuracy_score(ids, scores, k=5, labels=columns)
    )
    scalars = measure(predictions).scalars
    assert list(scalars) == list(METRICS)
    assert scalars == pytest.approx(expected, abs=1e-6)


@on_table
def test_classes_are_measured_as_scikit_learn_does(predictions: Predictions) -> None:
    labels, ids, scores = predictions.labels, predictions.ids, predictions.probabilities
    truth, predicted = np.array(labels)[ids], np.array(labels)[scores.argmax(axis=1)]
    measured = measure(predictions)
    assert measured.labels == tuple(sorted(labels))
    rates = metrics.precision_recall_fscore_support(
        truth, predicted, labels=measured.labels, zero_division=np.nan
    )
    for values, expected in zip((measured.precision, measured.recall), rates, strict=False):
        np.testing.assert_allclose(values, expected, atol=1e-6)
    np.testing.assert_allclose(measured.f1, rates[2], atol=1e-6)
    np.testing.assert_array_equal(measured.support, rates[3])
    matrix = metrics.confusion_matrix(truth, predicted, labels=measured.labels)
    np.testing.assert_array_equal(measured.confusion, matrix)


def test_a_label_unknown_to_the_model_is_a_mistake() -> None:
    predictions = draw_predictions([30, 20, 10])
    unknown = np.arange(60) % 4 == 0
    ids = np.where(unknown, -1, predictions.ids)
    measured = measure(replace(predictions, ids=ids))
    # As if the model knew the label and gave it next to no probability.
    scores = np.column_stack([normalize(predictions.probabilities), np.full(60, 1e-7)])
    truth, predicted = np.where(unknown, 3, ids), scores.argmax(axis=1)
    macro = metrics.precision_recall_fscore_support(
        truth, predicted, average="macro", zero_division=0
    )
    expected = {
        "accuracy": metrics.accuracy_score(truth, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, predicted),
        "top_5_accuracy": 0.75,
        "macro_precision": macro[0],
        "macro_f1": macro[2],
        "auc": np.mean([metrics.roc_auc_score(truth == c, scores[:, c]) for c in range(3)]),
        "ece": ece_of(truth, scores),
        "loss": -np.log(scores[np.arange(60), truth]).mean(),
    }
    assert measured.scalars == pytest.approx(expected, abs=1e-6)
    assert measured.confusion.sum() == 45
    assert measured.precision.mean() == pytest.approx(macro[0] * 4 / 3)


def test_reliability_bins_exclude_their_lower_edge() -> None:
    confidence = np.array([0.6, 0.6, 0.61, 1.0])
    ids = np.array([0, 1, 0, 0])
    bins = measure(
        Predictions(("a", "b"), ids, np.column_stack([confidence, 1 - confidence]))
    ).reliability
    assert [bins[number].high for number in (8, 9, 14)] == pytest.approx([0.6, 2 / 3, 1])
    assert [bin_.examples for bin_ in bins[8:]] == [2, 1, 0, 0, 0, 0, 1]
    means = [(bins[number].confidence, bins[number].accuracy) for number in (8, 9, 14)]
    np.testing.assert_allclose(means, [(0.6, 0.5), (0.61, 1), (1, 1)])
    assert np.isnan([bin_.accuracy for bin_ in bins[:8]]).all()


def test_slices_are_sorted_by_number() -> None:
    sizes = ("128 to 255 px", "under 32 px", "32 to 63 px", "1024 and more px", "32 to 63 px")
    model = predict("ab", truth="aaaab", said="aabba")
    slices = {"size": sizes, "folder": ("b/10", "b/9", "a", "", "a")}
    parts = compare_models(as_evaluated(model, slices=slices)).slices
    assert [(part.slicing, part.value, part.examples, part.accuracy) for part in parts] == [
        ("size", "under 32 px", 1, 1),
        ("size", "32 to 63 px", 2, 0),
        ("size", "128 to 255 px", 1, 1),
        ("size", "1024 and more px", 1, 0),
        ("folder", "", 1, 0),
        ("folder", "a", 2, 0),
        ("folder", "b/9", 1, 1),
        ("folder", "b/10", 1, 1),
    ]
    assert all((part.baseline, part.change) == (None, None) for part in parts)
    assert all(0 <= part.interval.low < part.interval.high <= 1 for part in parts)


def test_confused_pairs_are_sorted_by_examples_then_by_fraction() -> None:
    assert len(compare_models(as_evaluated(TABLE["mostly wrong"])).confused) == 20
    truth = "a" * 10 + "b" * 4 + "c" * 4 + "d" * 2
    said = "aaaaaaabbc" + "bbaa" + "ccba" + "dd"
    pairs = compare_models(as_evaluated(predict("dcba", truth=truth, said=said))).confused
    assert [(pair.label, pair.predicted, pair.examples, pair.share) for pair in pairs] == [
        ("b", "a", 2, 0.5),
        ("a", "b", 2, 0.2),
        ("c", "a", 1, 0.25),
        ("c", "b", 1, 0.25),
        ("a", "c", 1, 0.1),
    ]


def test_classes_with_most_mistakes() -> None:
    measured = measure(predict("dcba", truth="aaabbccd", said="aacbbbcd"))
    np.testing.assert_array_equal(measured.most_mistaken(1), [2])
    np.testing.assert_array_equal(measured.most_mistaken(3), [0, 1, 2])


@pytest.mark.parametrize("digits", [7, 1], ids=["as they are", "often equal"])
@on_table
def test_areas_are_those_of_scikit_learn(predictions: Predictions, digits: int) -> None:
    rounded = predictions.probabilities.round(digits)
    predictions = replace(predictions, probabilities=rounded)
    measured = measure(predictions)
    for place, label in enumerate(measured.labels):
        column = predictions.labels.index(label)
        truth, scores = predictions.ids == column, predictions.probabilities[:, column]
        expected = metrics.roc_auc_score(truth, scores) if truth.any() else np.nan
        assert measured.auc[place] == pytest.approx(expected, abs=1e-6, nan_ok=True)


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
