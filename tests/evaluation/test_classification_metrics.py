from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from components.evaluation.classification_metrics import (
    METRICS,
    Interval,
    ModelMetrics,
    Roc,
    compare,
    measure,
)
from components.evaluation.curves import mean_auc, trace_class
from components.evaluation.intervals import paired_interval, wilson_interval
from components.evaluation.metric_counts import MetricCounts
from components.evaluation.predictions import Evaluated, Floats, Ints, Predictions
from components.evaluation.slice_metrics import find_confused


def make_labels(classes: int) -> tuple[str, ...]:
    """Texts whose order is not that of the columns."""
    return tuple(f"class {(number + 1) % classes:03d}" for number in range(classes))


def make_predictions(
    support: Sequence[int], *, sureness: float = 1.5, sharpness: float = 1.0, seed: int = 0
) -> Predictions:
    """So many examples of each class, in random order; right the more often, the surer."""
    random = np.random.default_rng(seed)
    ids = random.permutation(np.repeat(np.arange(len(support)), support))
    logits = random.normal(0, 1, (len(ids), len(support)))
    logits[np.arange(len(ids)), ids] += sureness
    scores = np.exp(logits * sharpness)
    probabilities = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
    return Predictions(make_labels(len(support)), ids, probabilities)


def predict(labels: Sequence[str], truth: Sequence[str], said: Sequence[str]) -> Predictions:
    """A model that is sure of what it says; -1 for what it does not know."""
    columns = {label: column for column, label in enumerate(labels)}
    ids = np.array([columns.get(label, -1) for label in truth])
    probabilities = np.eye(len(labels), dtype=np.float32)[[columns[label] for label in said]]
    return Predictions(tuple(labels), ids, probabilities)


def evaluate(
    candidate: Predictions,
    baseline: Predictions | None = None,
    slices: Mapping[str, tuple[str, ...]] | None = None,
) -> Evaluated:
    names = tuple(f"{row}.png" for row in range(len(candidate.ids)))
    return Evaluated(names, slices or {}, candidate, baseline)


TABLE = {
    "balanced": make_predictions([20] * 6),
    "skewed": make_predictions([300, 40, 5, 1, 80, 9, 2]),
    "a class without examples": make_predictions([30, 0, 20, 10, 0, 5]),
    "a class that is never named": make_predictions([200, 1, 200, 200], sureness=4),
    "two classes": make_predictions([70, 30]),
    "mostly wrong": make_predictions([25] * 8, sureness=-1),
}
on_table = pytest.mark.parametrize("predictions", TABLE.values(), ids=TABLE.keys())


def normalise(probabilities: Any) -> Floats:
    scores: Floats = probabilities / probabilities.sum(axis=1, dtype=np.float64, keepdims=True)
    return scores


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
    ids, scores = predictions.ids, normalise(predictions.probabilities)
    predicted = scores.argmax(axis=1)
    macro = metrics.precision_recall_fscore_support(
        ids, predicted, average="macro", zero_division=0
    )
    columns = range(len(predictions.labels))
    expected = {
        "accuracy": metrics.accuracy_score(ids, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(ids, predicted),
        "macro_precision": macro[0],
        "macro_recall": macro[1],
        "macro_f1": macro[2],
        "auc": np.mean([metrics.roc_auc_score(ids == c, scores[:, c]) for c in set(ids)]),
        "ece": ece_of(ids, scores),
        "loss": metrics.log_loss(ids, scores, labels=columns),
    }
    for k in (3, 5):
        top = (
            metrics.top_k_accuracy_score(ids, scores, k=k, labels=columns)
            if scores[0, k:].size
            else 1
        )
        expected[f"top_{k}_accuracy"] = top
    scalars = measure(predictions).scalars
    assert tuple(scalars) == METRICS
    assert scalars == pytest.approx(expected, abs=1e-6)


@on_table
def test_classes_are_measured_as_scikit_learn_does(predictions: Predictions) -> None:
    labels, ids, scores = predictions.labels, predictions.ids, predictions.probabilities
    truth, predicted = np.array(labels)[ids], np.array(labels)[scores.argmax(axis=1)]
    measures = measure(predictions)
    assert measures.labels == tuple(sorted(labels))
    rates = metrics.precision_recall_fscore_support(
        truth, predicted, labels=measures.labels, zero_division=np.nan
    )
    for found, expected in zip((measures.precision, measures.recall), rates, strict=False):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(measures.f1, rates[2], atol=1e-6)
    np.testing.assert_array_equal(measures.support, rates[3])
    matrix = metrics.confusion_matrix(truth, predicted, labels=measures.labels)
    np.testing.assert_array_equal(measures.confusion, matrix)
    check_areas(predictions, measures)


@pytest.mark.parametrize("support", [(40, 30, 20), (60, 40), (10, 0, 50)])
def test_areas_of_scores_that_are_often_equal(support: tuple[int, ...]) -> None:
    predictions = make_predictions(support)
    coarse = replace(predictions, probabilities=predictions.probabilities.round(1))
    check_areas(coarse, measure(coarse))


def check_areas(predictions: Predictions, measures: ModelMetrics) -> None:
    for place, label in enumerate(measures.labels):
        column = predictions.labels.index(label)
        truth, scores = predictions.ids == column, predictions.probabilities[:, column]
        found = measures.auc[place], measures.average_precision[place]
        if truth.any():
            expected = metrics.roc_auc_score, metrics.average_precision_score
            assert found == pytest.approx([score(truth, scores) for score in expected], abs=1e-6)
        else:
            assert np.isnan(found).all()


def test_mean_auc_is_that_of_scikit_learn() -> None:
    predictions = make_predictions([30, 50, 20, 9])
    scores = normalise(predictions.probabilities)
    expected = metrics.roc_auc_score(predictions.ids, scores, multi_class="ovr")
    assert mean_auc(predictions.ids, scores) == pytest.approx(expected, abs=1e-9)
    assert np.isnan(mean_auc(np.zeros(4, np.int64), scores[:4]))


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ([0, 50, 120], "halves"),
        ([0, 1, 2, 119, 120], "single examples, as Beam may give them"),
        ([0, 0, 120, 120], "empty batches"),
        (range(121), "every example alone"),
    ],
)
def test_tallies_of_the_parts_add_up_to_that_of_the_whole(ends: Sequence[int], why: str) -> None:
    predictions = make_predictions([60, 0, 29, 31])
    ids, probabilities = predictions.ids.copy(), predictions.probabilities
    ids[::11] = -1
    parts = [MetricCounts.of(ids[a:b], probabilities[a:b]) for a, b in pairwise(ends)]
    whole = MetricCounts.of(ids, probabilities).scalars()
    for order in (parts, parts[::-1]):
        merged = pickle.loads(pickle.dumps(sum(order, start=MetricCounts())))
        assert merged.examples == 120
        assert merged.scalars() == pytest.approx(whole, rel=1e-12), why


def test_no_examples_have_no_scalars() -> None:
    empty = MetricCounts.of(np.empty(0, np.int64), np.empty((0, 3), np.float32))
    assert np.isnan(list((empty + MetricCounts()).scalars().values())).all()


def test_a_label_that_the_model_does_not_know_is_a_mistake() -> None:
    predictions = make_predictions([30, 20, 10])
    unknown = np.arange(60) % 4 == 0
    ids = np.where(unknown, -1, predictions.ids)
    measures = measure(replace(predictions, ids=ids))
    # What it would be, if the model knew the label and gave it next to nothing.
    scores = np.column_stack([normalise(predictions.probabilities), np.full(60, 1e-7)])
    truth, predicted = np.where(unknown, 3, ids), scores.argmax(axis=1)
    macro = metrics.precision_recall_fscore_support(
        truth, predicted, average="macro", zero_division=0
    )
    expected = {
        "accuracy": metrics.accuracy_score(truth, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, predicted),
        "top_3_accuracy": 0.75,
        "top_5_accuracy": 0.75,
        "macro_precision": macro[0],
        "macro_recall": macro[1],
        "macro_f1": macro[2],
        "auc": np.mean([metrics.roc_auc_score(truth == c, scores[:, c]) for c in range(3)]),
        "ece": ece_of(truth, scores),
        "loss": -np.log(scores[np.arange(60), truth]).mean(),
    }
    assert measures.scalars == pytest.approx(expected, abs=1e-6)
    assert measures.confusion.sum() == 45
    assert measures.precision.mean() == pytest.approx(macro[0] * 4 / 3)


def test_of_equal_probabilities_the_first_ones_are_on_top() -> None:
    equal = np.full((6, 6), 1 / 6, np.float32)
    scalars = measure(Predictions(make_labels(6), np.arange(6), equal)).scalars
    names = ("accuracy", "top_3_accuracy", "top_5_accuracy")
    assert [scalars[name] for name in names] == pytest.approx([1 / 6, 3 / 6, 5 / 6])


def test_loss_is_bounded_as_keras_bounds_it() -> None:
    measures = measure(predict("ab", truth="aa", said="ab"))
    assert measures.scalars["loss"] == pytest.approx((-np.log(1e-7) - np.log(1 - 1e-7)) / 2)


def test_reliability_is_of_bins_without_their_lower_edge() -> None:
    confidence = np.array([0.6, 0.6, 0.61, 1.0])
    ids = np.array([0, 1, 0, 0])
    reliability = measure(
        Predictions(("a", "b"), ids, np.column_stack([confidence, 1 - confidence]))
    ).reliability
    assert reliability.edges[[9, 10, 15]] == pytest.approx([0.6, 2 / 3, 1])
    np.testing.assert_array_equal(reliability.examples[8:], [2, 1, 0, 0, 0, 0, 1])
    assert reliability.confidence[[8, 9, 14]] == pytest.approx([0.6, 0.61, 1])
    assert reliability.accuracy[[8, 9, 14]] == pytest.approx([0.5, 1, 1])
    assert np.isnan(reliability.accuracy[:8]).all()


@pytest.mark.parametrize("classes", [2, 4, 30])
def test_roc_curves_are_thinned_to_their_shape(classes: int) -> None:
    predictions = make_predictions([200] * classes)
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


def check_roc(roc: Roc) -> None:
    assert len(roc.recall) <= 100
    ends = [(roc.false_positive_rate[i], roc.recall[i]) for i in (0, -1)]
    assert ends == [(0, 0), (1, 1)]
    for rates, sign in ((roc.false_positive_rate, 1), (roc.recall, 1), (roc.thresholds, -1)):
        assert (sign * np.diff(rates) >= 0).all()
    assert (roc.thresholds.max(), roc.thresholds.min()) == (1, 0)


def test_precision_and_recall_are_those_of_scikit_learn() -> None:
    predictions = make_predictions([100, 300, 500])
    for column, label in enumerate(predictions.labels):
        of_class = trace_class(predictions, label)
        assert of_class
        truth, scores = predictions.ids == column, predictions.probabilities[:, column]
        precision, recall, _ = metrics.precision_recall_curve(truth, scores)
        found = of_class.precision_recall
        points = list(zip(found.recall, found.precision, strict=True))
        assert len(points) <= 100
        assert set(points) <= set(zip(recall, precision, strict=True))
        assert (points[0], points[-1]) == ((1, precision[0]), (0, 1))
        assert (np.diff(found.recall) <= 0).all()
        average = metrics.average_precision_score(truth, scores)
        assert found.average == pytest.approx(average)
        assert metrics.auc(found.recall, found.precision) == pytest.approx(average, abs=0.01)


def test_roc_curve_of_equal_scores_is_that_of_scikit_learn() -> None:
    predictions = make_predictions([20, 20])
    coarse = replace(predictions, probabilities=predictions.probabilities.round(1))
    roc = measure(coarse).roc
    assert roc
    column = coarse.labels.index("class 001")
    x, y, _ = metrics.roc_curve(coarse.ids == column, coarse.probabilities[:, column])
    found = np.interp(x + y, roc.false_positive_rate + roc.recall, roc.recall)
    np.testing.assert_allclose(found, y)
    assert roc.area == pytest.approx(metrics.auc(x, y))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5, 0.5, 0.5, 0.5], [(0, 0), (1, 1)]),
        ([0.1, 0.2, 0.8, 0.9], [(0, 0), (0, 1), (1, 1)]),
    ],
)
def test_roc_curves_have_no_more_points_than_bends(
    scores: list[float], expected: list[tuple[int, int]]
) -> None:
    columns = np.array([[1 - score, score] for score in scores], np.float32)
    roc = measure(Predictions(("a", "b"), np.array([0, 0, 1, 1]), columns)).roc
    assert roc
    assert list(zip(roc.false_positive_rate, roc.recall, strict=True)) == expected


def test_of_two_classes_one_has_a_curve() -> None:
    comparison = compare(evaluate(TABLE["two classes"]))
    assert [of.label for of in comparison.curves] == ["class 001"]


@pytest.mark.parametrize("labels", ["ab", "abc"])
def test_no_curve_of_examples_of_one_class(labels: str) -> None:
    comparison = compare(evaluate(predict(labels, truth="bbbb", said="abba")))
    assert comparison.measures.roc is None
    assert comparison.curves == ()
    assert np.isnan(comparison.measures.scalars["auc"])


def test_curves_of_many_classes_are_those_of_least_area() -> None:
    sureness = np.tile([0.3, 3, 1], 10)[:, np.newaxis] * np.eye(30)
    ids = np.repeat(np.arange(29), 20)
    logits = np.random.default_rng(0).normal(0, 1, (580, 30)) + sureness[ids]
    probabilities = normalise(np.exp(logits)).astype(np.float32)
    comparison = compare(evaluate(Predictions(make_labels(30), ids, probabilities)))
    shown = [of.label for of in comparison.curves]
    auc = dict(zip(comparison.measures.labels, comparison.measures.auc, strict=True))
    known = sorted((label for label in auc if not np.isnan(auc[label])), key=auc.__getitem__)
    assert len(known) == 29
    assert shown == sorted(known[:12])
    assert [of.roc.area for of in comparison.curves] == pytest.approx([auc[of] for of in shown])


@pytest.mark.parametrize("missing", ["candidate", "baseline"])
def test_probabilities_that_are_no_numbers_are_wrong(missing: str) -> None:
    models = {"candidate": make_predictions([9, 9, 9]), "baseline": make_predictions([9, 9, 9])}
    models[missing] = replace(
        models[missing], probabilities=np.full((27, 3), np.nan, dtype=np.float32)
    )
    comparison = compare(evaluate(models["candidate"], models["baseline"]))
    assert comparison.baseline
    worse = comparison.measures if missing == "candidate" else comparison.baseline
    assert worse.scalars["top_3_accuracy"] == 0
    assert np.isnan([worse.scalars["loss"], worse.scalars["auc"]]).all()
    assert worse.roc is None
    assert "loss" not in comparison.changes


def flags(hits: int, examples: int) -> Any:
    return np.arange(examples) < hits


@pytest.mark.parametrize(
    ("hits", "examples", "low", "high"),
    # Newcombe 1998, "Two-Sided Confidence Intervals for the Single Proportion", table I, method 3.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 1 - 0.1611, 1.0000),
        (1, 1, 0.2065, 1.0000),
    ],
)
def test_shares_are_bounded_as_published(hits: int, examples: int, low: float, high: float) -> None:
    found = wilson_interval(flags(hits, examples))
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize(
    ("gained", "lost", "examples", "low", "high"),
    [
        # The example of ci.prop.ps in Bonett's R package statpsych.
        (26, 4, 40, 0.3126438, 0.7349752),
        (4, 26, 40, -0.7349752, -0.3126438),
        (0, 0, 98, -0.02772, 0.02772),
        (1, 0, 1, -0.7335, 1),
    ],
)
def test_changes_are_bounded_as_published(
    gained: int, lost: int, examples: int, low: float, high: float
) -> None:
    found = paired_interval(flags(gained, examples), flags(lost, examples)[::-1])
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)


def holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def test_intervals_of_shares_hold_the_true_share() -> None:
    examples = 40
    bounds = [wilson_interval(flags(hits, examples)) for hits in range(examples + 1)]
    coverage = []
    for share in np.linspace(0.02, 0.98, 49):
        odds = [
            math.comb(examples, hits) * share**hits * (1 - share) ** (examples - hits)
            for hits in range(examples + 1)
        ]
        coverage.append(
            sum(odd for odd, bound in zip(odds, bounds, strict=True) if holds(bound, share))
        )
    assert np.mean(coverage) == pytest.approx(0.95, abs=0.01)
    assert min(coverage) > 0.85


@pytest.mark.parametrize("gained_and_lost", [(0.1, 0.1), (0.02, 0.01), (0.3, 0.05)])
def test_intervals_of_changes_hold_the_true_change(gained_and_lost: tuple[float, float]) -> None:
    gained, lost = gained_and_lost
    random, held = np.random.default_rng(0), 0
    for _ in range(1000):
        kind = random.choice(3, size=100, p=[gained, lost, 1 - gained - lost])
        held += holds(paired_interval(kind == 0, kind == 1), gained - lost)
    assert 930 <= held <= 995


def draw_models(seed: int) -> Evaluated:
    """A model, and the same one with noise on its answers."""
    candidate = make_predictions([70, 100, 130], sureness=2, seed=seed)
    noise = np.random.default_rng(seed + 1_000).normal(0, 1, candidate.probabilities.shape)
    blurred = normalise(candidate.probabilities * np.exp(noise)).astype(np.float32)
    return evaluate(candidate, replace(candidate, probabilities=blurred))


def test_intervals_are_as_wide_as_metrics_vary_from_sample_to_sample() -> None:
    comparison = compare(draw_models(300))
    samples = []
    for seed in range(1, 200):
        drawn = draw_models(seed)
        assert drawn.baseline
        pair = [
            {
                **MetricCounts.of(of.ids, of.probabilities).scalars(),
                "auc": mean_auc(of.ids, of.probabilities),
            }
            for of in (drawn.candidate, drawn.baseline)
        ]
        samples.append(pair)
    told = set(METRICS) - {"ece", "top_3_accuracy", "top_5_accuracy"}
    assert comparison.intervals.keys() == comparison.changes.keys() == told
    for name in told:
        values = np.array([candidate[name] for candidate, _ in samples])
        changes = values - [baseline[name] for _, baseline in samples]
        for found, seen in ((comparison.intervals, values), (comparison.changes, changes)):
            width = found[name].high - found[name].low
            assert width == pytest.approx(2 * 1.96 * seen.std(), rel=0.25), name
            assert holds(found[name], seen.mean()), name


def test_intervals_hold_the_value_of_many_rare_classes() -> None:
    model = make_predictions([5] * 150, sureness=3)
    comparison = compare(evaluate(model))
    truth = measure(make_predictions([100] * 150, sureness=3)).scalars
    # Of five examples of a class a resample often has one or two, whose F1 is lower.
    for name in ("balanced_accuracy", "macro_precision", "macro_recall", "macro_f1"):
        interval, value = comparison.intervals[name], comparison.measures.scalars[name]
        assert interval.low < value < interval.high <= 1, name
        assert holds(interval, truth[name]), name


def test_the_same_seed_gives_the_same_intervals() -> None:
    drawn = draw_models(3)
    first, second, other = (compare(drawn, seed=seed) for seed in (5, 5, 6))
    assert (first.intervals, first.changes) == (second.intervals, second.changes)
    assert first.intervals["loss"] != other.intervals["loss"]
    assert tuple(first.intervals) == tuple(
        metric for metric in METRICS if metric in first.intervals
    )


def test_perfect_models_may_be_wrong_elsewhere() -> None:
    model = predict("abcd", truth="abcd" * 10, said="abcd" * 10)
    comparison = compare(evaluate(model, model, {"all": ("of them",) * 40}))
    assert comparison.measures.scalars["accuracy"] == 1
    # Resamples cannot show mistakes that were not seen.
    assert (
        comparison.intervals.keys() == comparison.changes.keys() == {"accuracy", "top_3_accuracy"}
    )
    for interval in (comparison.intervals["accuracy"], comparison.slices[0].interval):
        assert 0.9 < interval.low < interval.high == 1
    for change in (comparison.changes["accuracy"], comparison.slices[0].change):
        assert change
        assert change.low == -change.high < 0


def test_a_baseline_of_other_labels_in_another_order() -> None:
    truth = "aabbccdd" * 5
    said, before = "aabbccda" * 5, "aabbeeaa" * 5
    candidate = predict("dcba", truth=truth, said=said)
    # It knows no d, and an e that there is not.
    baseline = predict("abce", truth=truth, said=before)
    comparison = compare(evaluate(candidate, baseline, {"class": tuple(truth)}))
    assert comparison.baseline
    assert comparison.measures.scalars["accuracy"] == 7 / 8
    assert comparison.baseline.scalars["accuracy"] == 4 / 8
    assert comparison.baseline.labels == ("a", "b", "c", "e")
    assert comparison.changes["accuracy"] == paired_interval(flags(15, 40), flags(0, 40))
    assert holds(comparison.changes["balanced_accuracy"], 3.5 / 4 - 2 / 4)
    found = [(of.value, of.accuracy, of.baseline) for of in comparison.slices]
    assert found == [("a", 1, 1), ("b", 1, 1), ("c", 1, 0), ("d", 0.5, 0)]


def test_the_order_of_the_labels_changes_nothing() -> None:
    drawn = draw_models(0)
    order = [2, 0, 1]
    turned = Predictions(
        labels=tuple(drawn.candidate.labels[column] for column in order),
        ids=np.argsort(order)[drawn.candidate.ids],
        probabilities=drawn.candidate.probabilities[:, order],
    )
    one, other = (compare(evaluate(model, drawn.baseline)) for model in (drawn.candidate, turned))
    assert one.measures.scalars == pytest.approx(other.measures.scalars)
    np.testing.assert_array_equal(one.measures.confusion, other.measures.confusion)
    for name, change in one.changes.items():
        ends = other.changes[name].low, other.changes[name].high
        assert (change.low, change.high) == pytest.approx(ends), name


def test_slices_are_in_the_order_of_their_numbers() -> None:
    sizes = ("128 to 255 px", "under 32 px", "32 to 63 px", "1024 and more px", "32 to 63 px")
    model = predict("ab", truth="aaaab", said="aabba")
    slices = {"size": sizes, "folder": ("b/10", "b/9", "a", "", "a")}
    found = compare(evaluate(model, slices=slices)).slices
    assert [(of.slicing, of.value, of.examples, of.accuracy) for of in found] == [
        ("size", "under 32 px", 1, 1),
        ("size", "32 to 63 px", 2, 0),
        ("size", "128 to 255 px", 1, 1),
        ("size", "1024 and more px", 1, 0),
        ("folder", "", 1, 0),
        ("folder", "a", 2, 0),
        ("folder", "b/9", 1, 1),
        ("folder", "b/10", 1, 1),
    ]
    assert all((of.baseline, of.change) == (None, None) for of in found)
    assert all(0 <= of.interval.low < of.interval.high <= 1 for of in found)


def test_a_single_example() -> None:
    model = make_predictions([1, 0, 0, 0])
    comparison = compare(evaluate(model, model, {"size": ("32 to 63 px",)}))
    assert set(comparison.intervals) == {"accuracy", "top_3_accuracy"}
    assert comparison.slices[0].examples == 1
    change = comparison.slices[0].change
    assert change
    assert -1 <= change.low == -change.high < -0.9


def test_confused_pairs_are_those_of_most_examples_then_of_the_largest_share() -> None:
    truth = "a" * 10 + "b" * 4 + "c" * 4 + "d" * 2
    said = "aaaaaaabbc" + "bbaa" + "ccba" + "dd"
    found = compare(evaluate(predict("dcba", truth=truth, said=said))).confused
    assert [(of.label, of.predicted, of.examples, of.share) for of in found] == [
        ("b", "a", 2, 0.5),
        ("a", "b", 2, 0.2),
        ("c", "a", 1, 0.25),
        ("c", "b", 1, 0.25),
        ("a", "c", 1, 0.1),
    ]


def test_no_more_than_20_confused_pairs() -> None:
    measures = measure(TABLE["mostly wrong"])
    found = find_confused(measures.labels, measures.confusion)
    mistakes = measures.confusion[~np.eye(8, dtype=bool)]
    assert [of.examples for of in found] == sorted(mistakes, reverse=True)[:20]


def test_the_classes_of_most_mistakes() -> None:
    measures = measure(predict("dcba", truth="aaabbccd", said="aacbbbcd"))
    np.testing.assert_array_equal(measures.most_mistaken(1), [2])
    np.testing.assert_array_equal(measures.most_mistaken(3), [0, 1, 2])
