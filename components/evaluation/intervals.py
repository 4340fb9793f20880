"""How far a measure may be from that of all images there could be: intervals of 95 %."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from components.evaluation.curves import mean_auc
from components.evaluation.metric_counts import MOST_LOSS, TOP, Answers, Flags
from components.evaluation.predictions import Floats, Ints, Predictions

_CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
# Not ece: it grows with noise, and each resample adds some. The interval held the true value of a
# well calibrated model in none of 300 simulations, of 300 and of 1,000 examples.
_RESAMPLED = ("balanced_accuracy", "macro_precision", "macro_recall", "macro_f1", "loss", "auc")
# Classes, and scores of them, that are sorted in each resample for the auc; it takes 2 s.
_MOST_SORTED_CLASSES, _MOST_SORTED_SCORES = 10, 10_000
# As many resamples as examples × resamples allow; 50,000,000 take some seconds.
_MOST_RESAMPLES, _LEAST_RESAMPLES, _MOST_DRAWN = 1000, 200, 50_000_000


@dataclass(frozen=True)
class Interval:
    """Holds the true value with 95 % confidence."""

    low: float
    high: float


@dataclass(frozen=True)
class Judged:
    """A model's predictions, and what counts of them."""

    predictions: Predictions
    answers: Answers

    @classmethod
    def of(cls, predictions: Predictions) -> Judged:
        """Judge predictions."""
        return cls(predictions, Answers.of(predictions.ids, predictions.probabilities))


def wilson_interval(hits: Flags) -> Interval:
    """Bound a proportion from at least one example, sanely where all or none hit.

    Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference".

    Args:
        hits: [examples].
    """
    share, z2 = float(hits.mean()), _Z**2 / len(hits)
    centre = (share + z2 / 2) / (1 + z2)
    half = math.sqrt(share * (1 - share) * z2 + z2**2 / 4) / (1 + z2)
    # The ends are exactly 0 and 1, but for rounding.
    low = max(0.0, centre - half) if hits.any() else 0.0
    return Interval(low, high=1.0 if hits.all() else min(1.0, centre + half))


def paired_interval(hits: Flags, baseline: Flags) -> Interval:
    """Bound how much larger a proportion is than that of another model, on the same examples.

    Bonett and Price 2012, "Adjusted Wald Confidence Interval for a Difference of Binomial
    Proportions Based on Paired Data": with one more example that only either hits, so that the
    interval has a width even where the models agree on every example.

    Args:
        hits: [examples], at least one.
        baseline: [examples], of the other model.
    """
    pairs = len(hits) + 2
    gained = (np.count_nonzero(hits & ~baseline) + 1) / pairs
    lost = (np.count_nonzero(baseline & ~hits) + 1) / pairs
    half = _Z * math.sqrt((gained + lost - (gained - lost) ** 2) / pairs)
    return Interval(low=max(-1.0, gained - lost - half), high=min(1.0, gained - lost + half))


def bound_metrics(
    candidate: Judged, baseline: Judged | None, *, seed: int
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Bound the candidate's metrics, and how much larger they are than the baseline's.

    By `wilson_interval` and `paired_interval` for accuracies, else by `bootstrap`. Left
    out are ece, auc above 10 classes or 10,000 examples × classes, top-k accuracy where there are
    but k classes, and what `bootstrap` cannot tell.

    Returns:
        Metric → interval of its value, and of its change; no changes without a baseline.
    """
    hits = _find_hits(candidate)
    intervals = {metric: wilson_interval(of) for metric, of in hits.items()}
    models = [candidate, baseline] if baseline else [candidate]

    def estimate(rows: Ints) -> Floats:
        values = [_estimate(model, rows) for model in models]
        return np.stack([values[0], *(values[0] - of_baseline for of_baseline in values[1:])])

    low, high = bootstrap(estimate, len(candidate.predictions.ids), seed=seed)
    intervals |= _name(low[0], high[0], least=0)
    if not baseline:
        return intervals, {}
    before = _find_hits(baseline)
    changes = {name: paired_interval(hits[name], before[name]) for name in hits if name in before}
    return intervals, changes | _name(low[1], high[1], least=-1)


def _find_hits(model: Judged) -> dict[str, Flags]:
    classes, rank = len(model.predictions.labels), model.answers.rank
    tops = {metric: rank < most for metric, most in TOP.items() if most < classes}
    return {"accuracy": model.answers.right, **tops}


def _estimate(model: Judged, rows: Ints) -> Floats:
    """Return the value of each of `_RESAMPLED` on examples drawn with replacement."""
    ids, probabilities = model.predictions.ids, model.predictions.probabilities
    weights = np.bincount(rows, minlength=len(ids)).astype(np.float64)
    scalars = dict(model.answers.count(weights).scalars())
    few = len(model.predictions.labels) <= _MOST_SORTED_CLASSES
    small = few and probabilities.size <= _MOST_SORTED_SCORES
    scalars["auc"] = mean_auc(ids[rows], probabilities[rows]) if small else np.nan
    return np.array([scalars[metric] for metric in _RESAMPLED])


def _name(low: Floats, high: Floats, *, least: float) -> dict[str, Interval]:
    """Leave out what is not told; keep within `least` times what is possible and that."""
    named: dict[str, Interval] = {}
    for metric, *ends in zip(_RESAMPLED, low.tolist(), high.tolist(), strict=True):
        if not np.isnan(ends).any():
            most = MOST_LOSS if metric == "loss" else 1.0
            named[metric] = Interval(*np.clip(ends, least * most, most).tolist())
    return named


def bootstrap(
    estimate: Callable[[Ints], Floats], examples: int, *, seed: int
) -> tuple[Floats, Floats]:
    """Bound each of the values that `estimate` returns, from what it says of resamples.

    The bounds are the 2.5 % and the 97.5 % quantile of 1,000 resamples of the examples; of fewer
    above 50,000 examples, and of 200 at least (Efron and Tibshirani 1993, "An Introduction to the
    Bootstrap", chapters 10 and 13). From them goes the bias that the resamples show, twice: they
    have it over the value, as the value has it over the truth. It matters to means over classes of
    few examples. The bounds are too narrow where the examples show but a few mistakes.

    Args:
        estimate: gives [...] for the row numbers of a resample, [examples].
        examples: of which each resample has as many, some of them several times.
        seed: same seed, same bounds.

    Returns:
        Low and high, [...] each; NaN where resamples tell nothing: for a value that is no number
        in some, the same in every one, or so biased that it is out of bounds itself.
    """
    random = np.random.default_rng(seed)
    resamples = min(max(_MOST_DRAWN // examples, _LEAST_RESAMPLES), _MOST_RESAMPLES)
    drawn = np.stack([estimate(random.integers(examples, size=examples)) for _ in range(resamples)])
    value = estimate(np.arange(examples))
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0) - 2 * (drawn.mean(axis=0) - value)
    # Apart by more than rounding.
    told = (high - low > 1e-12) & (low <= value) & (value <= high)
    return np.where(told, low, np.nan), np.where(told, high, np.nan)
