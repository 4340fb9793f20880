from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from components.contract.confidence import Z, proportion_interval
from components.metrics.classification_metrics import compare_models, measure
from components.metrics.intervals import f1_interval, paired_interval
from components.metrics.metric_table import METRICS
from components.metrics.predictions import Counts, Evaluated
from components.metrics.score_metrics import mean_auc
from tests.evaluation.predictions_sample import (
    as_evaluated,
    draw_predictions,
    flags,
    normalize,
    predict,
)

few_resamples = pytest.mark.usefixtures("few_resamples")


@pytest.mark.parametrize(
    ("hits", "examples", "low", "high"),
    # Newcombe 1998, "Two-Sided Confidence Intervals for the Single Proportion", table I, method 3.
    [(81, 263, 0.2553, 0.3662), (0, 20, 0.0000, 0.1611), (1, 1, 0.2065, 1.0000)],
)
def test_intervals_of_proportions_are_as_published(
    hits: int, examples: int, low: float, high: float
) -> None:
    interval = proportion_interval(hits, examples)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(0.1, 0.05, 0.05), (0.02, 0.06, 0.01), (0.3, 0.01, 0.0)])
def test_f1_intervals_have_95_percent_coverage(shares: tuple[float, float, float]) -> None:
    """Of 200 images, some are found, some taken for the class, some missed, and the rest others."""
    hits, taken, missed = shares
    f1 = 2 * hits / (2 * hits + taken + missed)
    drawn = np.random.default_rng(0).multinomial(200, [*shares, 1 - sum(shares)], size=300)
    ends = [f1_interval(right, right + wrong + lost) for right, wrong, lost, _ in drawn.tolist()]
    held = np.mean([interval.low <= f1 <= interval.high for interval in ends])
    assert 0.92 <= held <= 0.99


@pytest.mark.parametrize(
    ("gained", "lost", "examples", "low", "high"),
    [
        # Table II of Fagerland et al., 2014.
        (1, 7, 21, -0.517, -0.026),
        (0, 0, 98, -(Z**2) / (98 + Z**2), Z**2 / (98 + Z**2)),
        (1, 0, 1, -0.5869, 1),
    ],
)
def test_intervals_of_changes_are_as_published(
    gained: int, lost: int, examples: int, low: float, high: float
) -> None:
    interval = paired_interval(flags(gained, examples), flags(lost, examples)[::-1])
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize("images", [50, 137, 300, 600])
@pytest.mark.parametrize("drop", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("gained", [0.0, 0.002, 0.01])
def test_a_model_at_the_bound_is_within_it_once_in_forty_evaluations(
    images: int, drop: float, gained: float
) -> None:
    """Computed from all outcomes that are likelier than one in a million, not from a sample."""
    outcomes = np.array([pair for pair in np.ndindex(40, 80) if sum(pair) <= images])
    counts = np.column_stack([outcomes, images - outcomes.sum(axis=1)])
    likely = stats.multinomial.pmf(counts, images, [gained, gained + drop, 1 - 2 * gained - drop])
    assert likely.sum() == pytest.approx(1)
    lows = {
        pair: paired_interval(flags(pair[0], images), flags(pair[1], images)[::-1]).low
        for pair in map(tuple, outcomes[likely > 1e-6].tolist())
    }
    within = [lows.get(tuple(pair), -1) > -drop for pair in outcomes.tolist()]
    assert likely[within].sum() <= 0.026


def draw_models(seed: int) -> Evaluated:
    """A model, and the same one with noise on its answers."""
    candidate = draw_predictions([70, 100, 130], sureness=2, seed=seed)
    noise = np.random.default_rng(seed + 1_000).normal(0, 1, candidate.probabilities.shape)
    blurred = normalize(candidate.probabilities * np.exp(noise)).astype(np.float32)
    return as_evaluated(candidate, replace(candidate, probabilities=blurred))


@pytest.mark.slow
def test_intervals_are_as_wide_as_metrics_vary_from_sample_to_sample() -> None:
    comparison = compare_models(draw_models(300))
    samples = []
    for seed in range(1, 100):
        drawn = draw_models(seed)
        assert drawn.baseline
        pair = [
            {**Counts.of(model.stats).scalars(), "auc": mean_auc(model.ids, model.probabilities)}
            for model in (drawn.candidate, drawn.baseline)
        ]
        samples.append(pair)
    names = set(METRICS) - {"ece", "top_5_accuracy"}
    assert comparison.intervals.keys() == comparison.changes.keys() == names
    for name in names:
        values = np.array([candidate[name] for candidate, _ in samples])
        changes = values - [baseline[name] for _, baseline in samples]
        for intervals, seen in ((comparison.intervals, values), (comparison.changes, changes)):
            width = intervals[name].high - intervals[name].low
            assert width == pytest.approx(2 * 1.96 * seen.std(), rel=0.25), name
            assert intervals[name].low <= seen.mean() <= intervals[name].high, name


@pytest.mark.slow
def test_intervals_hold_the_value_of_many_rare_classes() -> None:
    model = draw_predictions([5] * 150, sureness=3)
    comparison = compare_models(as_evaluated(model))
    truth = measure(draw_predictions([100] * 150, sureness=3)).scalars
    # Of five examples of a class a resample often has one or two, whose F1 is lower.
    for name in ("balanced_accuracy", "macro_precision", "macro_f1"):
        interval, value = comparison.intervals[name], comparison.metrics.scalars[name]
        assert interval.low < value < interval.high <= 1, name
        assert interval.low <= truth[name] <= interval.high, name


@few_resamples
def test_the_same_predictions_have_the_same_intervals() -> None:
    drawn = draw_models(3)
    first, second = (compare_models(drawn) for _ in range(2))
    assert (first.intervals, first.changes) == (second.intervals, second.changes)
    assert tuple(first.intervals) == tuple(
        metric for metric in METRICS if metric in first.intervals
    )


@few_resamples
def test_intervals_of_perfect_models() -> None:
    model = predict("abcd", truth="abcd" * 10, said="abcd" * 10)
    comparison = compare_models(as_evaluated(model, model, {"all": ("of them",) * 40}))
    assert comparison.metrics.scalars["accuracy"] == 1
    # Resamples cannot show mistakes that were not seen.
    assert comparison.intervals.keys() == comparison.changes.keys() == {"accuracy"}
    for interval in (comparison.intervals["accuracy"], comparison.slices[0].interval):
        assert 0.9 < interval.low < interval.high == 1
    for change in (comparison.changes["accuracy"], comparison.slices[0].change):
        assert change
        assert change.low == -change.high < 0


@few_resamples
def test_a_baseline_with_other_labels() -> None:
    truth = "aabbccdd" * 5
    said, before = "aabbccda" * 5, "aabbeeaa" * 5
    candidate = predict("dcba", truth=truth, said=said)
    # It knows no d, and an e that there is not.
    baseline = predict("abce", truth=truth, said=before)
    comparison = compare_models(as_evaluated(candidate, baseline, {"class": tuple(truth)}))
    assert comparison.baseline
    assert comparison.metrics.scalars["accuracy"] == 7 / 8
    assert comparison.compared == 30
    assert comparison.baseline.scalars["accuracy"] == 4 / 6
    assert comparison.baseline.labels == ("a", "b", "c", "e")
    assert comparison.differences["accuracy"] == 1 - 4 / 6
    assert comparison.changes["accuracy"] == paired_interval(flags(10, 30), flags(0, 30))
    assert comparison.intervals["accuracy"] == proportion_interval(35, 40)
    slices = [(part.value, part.accuracy, part.baseline) for part in comparison.slices]
    assert slices == [("a", 1, 1), ("b", 1, 1), ("c", 1, 0), ("d", 0.5, None)]


@few_resamples
def test_a_baseline_without_a_label_in_common_is_not_compared() -> None:
    candidate = predict("ab", truth="ab" * 5, said="ab" * 5)
    baseline = predict("cd", truth="ab" * 5, said="cd" * 5)
    comparison = compare_models(as_evaluated(candidate, baseline, {"class": tuple("ab" * 5)}))
    assert (comparison.baseline, comparison.compared) == (None, 0)
    assert (comparison.differences, comparison.changes) == ({}, {})
    assert comparison.slices[0].change is None


@few_resamples
@pytest.mark.parametrize("missing", ["candidate", "baseline"])
def test_nan_probabilities_count_as_wrong(missing: str) -> None:
    models = {"candidate": draw_predictions([9, 9, 9]), "baseline": draw_predictions([9, 9, 9])}
    models[missing] = replace(
        models[missing], probabilities=np.full((27, 3), np.nan, dtype=np.float32)
    )
    comparison = compare_models(as_evaluated(models["candidate"], models["baseline"]))
    assert comparison.baseline
    worse = comparison.metrics if missing == "candidate" else comparison.baseline
    assert worse.scalars["top_5_accuracy"] == 0
    assert np.isnan([worse.scalars["loss"], worse.scalars["auc"]]).all()
    assert "loss" not in comparison.changes
