"""Labels that are probably wrong, each with a label that is more likely.

Training images are judged by the mean of their logit margin over the epochs, images that were not
trained on by the probability of their label. Both are averages or predictions from training as it
was: a margin stays low where other images contradict a label, even if the network learns it by
heart.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.contract.confidence import proportion_interval
from components.contract.suspects import Suspect
from components.report.shown import LabelErrors
from components.report.suspects.similar import Columns

Margins = NDArray[np.floating[Any]]

_NUMBERS = ("margin", "probability", "given_probability")
_TEXTS = ("sha256", "path", "split", "label", "proposed")
# Half an hour of looking.
_MOST = 500
_LEAST_SCORE = 0.1

# Two groups of margins: wrong labels are contradicted, so their mean margin is negative, and far
# enough from the others in units of the groups' deviations (Ashman's D, which is 2 where two
# distributions separate clearly).
_LEAST_DISTANCE = 1.2
_BINS, _ITERATIONS, _RESAMPLES = 1000, 200, 100
LEAST_IMAGES = 100
"""Training images that make a distribution."""

# Fractions of the images, the most confidently predicted first.
_MOST_CONFIDENT = (0.1, 0.25, 0.5, 0.75, 1.0)
# Margins whose densities, eight numbers each, are in memory at once.
_BLOCK = 65_536
# Part of a score that keeps the order where probabilities are 1.
_FOR_ORDER = 0.02


def find_wrong_labels(columns: Columns) -> tuple[list[Suspect], LabelErrors | None]:
    """Return the suspects, highest scores first, and an estimate of how many labels are wrong.

    There are no suspects unless wrong labels stand out from images that are only hard, and no more
    than the estimate's upper bound. The network cannot judge labels that it has not learned, and
    none if those are of most images. The estimate is None if too few images can be judged.
    """
    if not {*_NUMBERS, "proposed"} <= columns.keys():
        return [], None
    # Neither images that a person has decided about, nor a label that no training image has.
    open_ones = (columns["label"] != "") & ~columns.get("decided", np.False_)
    judged = np.flatnonzero(open_ones & _is_learned(columns))
    margin, probability, given = (columns[name][judged].astype(np.float64) for name in _NUMBERS)
    if np.isfinite(margin).sum() < LEAST_IMAGES or 2 * len(judged) < open_ones.sum():
        return [], None
    scores, errors = score_labels(margin, probability, given)
    most = min(errors.high, _MOST) if errors.likely else 0
    order = np.argsort(-scores, kind="stable")[:most]
    chosen = order[scores[order] >= _LEAST_SCORE]
    texts = {name: columns[name][judged[chosen]].tolist() for name in _TEXTS}
    rows = zip(*texts.values(), scores[chosen].tolist(), strict=True)
    return [
        Suspect(key, path, split, label, "label", score, proposed)
        for key, path, split, label, proposed, score in rows
    ], errors


def _is_learned(columns: Columns) -> NDArray[np.bool_]:
    """Return whether the network agrees with most images of each image's label.

    It must not disagree with significantly more than half of those that it was not trained on,
    either: it may have learned the others by heart.
    """
    names, rows = np.unique(columns["label"].astype(str), return_inverse=True)
    wrong = columns["given_probability"] < columns["probability"]
    held = np.isnan(columns["margin"].astype(np.float64))

    def count(chosen: NDArray[np.bool_]) -> NDArray[np.int_]:
        return np.bincount(rows[chosen], minlength=len(names))

    unseen, errors = count(held), count(held & wrong)
    learned = (2 * count(wrong) <= count(wrong | ~wrong)) & (errors - unseen / 2 <= np.sqrt(unseen))
    judged: NDArray[np.bool_] = learned[rows]
    return judged


@dataclass(frozen=True)
class Groups:
    """Margins as a mixture of two normal distributions; the first is that of wrong labels."""

    mean: Margins
    deviation: Margins
    weight: Margins

    @property
    def stand_out(self) -> bool:
        """Whether the first group is one of wrong labels, not of hard images."""
        distance = (self.mean[1] - self.mean[0]) / math.sqrt((self.deviation**2).mean())
        return bool(self.mean[0] < 0 and distance > _LEAST_DISTANCE)

    def probability(self, margins: Margins) -> Margins:
        """Return the probability that each margin is one of the first group.

        It never rises with the margin, though that of a wide group would beyond the other one.
        """
        first = np.zeros(len(margins))
        for start in range(0, len(margins), _BLOCK):
            part = slice(start, start + _BLOCK)
            density = self._densities(margins[part])
            below = margins[part] < self.mean[1]
            first[part] = np.where(below, density[0] / density.sum(axis=0), 0.0)
        order = np.argsort(-margins, kind="stable")
        first[order] = np.maximum.accumulate(first[order])
        return first

    def _densities(self, margins: Margins) -> Margins:
        mean, deviation, weight = (
            values[:, np.newaxis] for values in (self.mean, self.deviation, self.weight)
        )
        density: Margins = weight / deviation * np.exp(-0.5 * ((margins - mean) / deviation) ** 2)
        return density + 1e-300


def fit_groups(margins: Margins) -> tuple[Groups, Margins]:
    """Divide margins into two groups, by expectation maximization.

    Returns:
        The groups, and the weight of the first one in 100 resamples of the margins.
    """
    # A few huge margins, of steps in which training went astray, would widen every bin.
    least, most = np.quantile(margins, (0.01, 0.99))
    margins = np.clip(margins, 2 * least - most, 2 * most - least)
    counts, edges = np.histogram(margins, _BINS)
    values = (edges[1:] + edges[:-1]) / 2
    low, high = np.quantile(margins, (0.02, 0.7))
    start = Groups(np.array([low, high]), np.full(2, margins.std() + 1e-6), np.array([0.1, 0.9]))
    groups = _maximize(start, values, counts, _ITERATIONS)
    random = np.random.default_rng(0)
    resampled = [
        _maximize(groups, values, random.poisson(counts), _ITERATIONS // 10).weight[0]
        for _ in range(_RESAMPLES)
    ]
    return groups, np.array(resampled)


def _maximize(groups: Groups, values: Margins, counts: NDArray[Any], iterations: int) -> Groups:
    # A group of equal margins has a width, too.
    least = (values[-1] - values[0]) / _BINS + 1e-6
    for _ in range(iterations):
        density = groups._densities(values)
        shares = density * (counts / density.sum(axis=0))
        sizes = shares.sum(axis=1) + 1e-9
        mean = shares @ values / sizes
        spread = ((values - mean[:, np.newaxis]) ** 2 * shares).sum(axis=1) / sizes
        groups = Groups(mean, np.sqrt(spread) + least, sizes / sizes.sum())
    return groups


def count_confident_errors(confidence: Margins, wrong: NDArray[np.bool_]) -> Margins:
    """Return low, likely and high fraction of wrong labels among images not trained on.

    Where the network is most confident, it hardly errs, so that the labels which contradict it are
    wrong. Of the most confident tenth, quarter, half and so on, the one with the lowest upper bound
    counts: fewer images are uncertain, more are hard.
    """
    order = np.argsort(-confidence, kind="stable")
    bounds = []
    for fraction in _MOST_CONFIDENT:
        chosen = order[: max(1, round(len(order) * fraction))]
        errors = int(wrong[chosen].sum())
        interval = proportion_interval(errors, len(chosen))
        bounds.append((interval.high, interval.low, errors / len(chosen)))
    high, low, likely = min(bounds)
    return np.array([low, likely, high])


def score_labels(
    margin: Margins, probability: Margins, given_probability: Margins
) -> tuple[Margins, LabelErrors]:
    """Return the probability that each label is wrong, and how many are.

    Args:
        margin: mean over the epochs; NaN for images that were not trained on. At least 100 others.
        probability: of the most probable label.
        given_probability: of the given label.
    """
    scores, images = np.zeros(len(margin)), len(margin)
    trained = ~np.isnan(margin)
    groups, resampled = fit_groups(margin[trained])
    scores[trained] = _break_ties(groups.probability(margin[trained]), -margin[trained])
    low, high = np.quantile(resampled, (0.025, 0.975))
    fractions = np.array([low, groups.weight[0], high]) if groups.stand_out else np.zeros(3)
    if len(held := np.flatnonzero(~trained)):
        given = given_probability[held]
        other = count_confident_errors(probability[held], given < probability[held])
        fractions = _combine(fractions, other)
        # Splits are samples of the same images, so the same fraction of each is suspect.
        ranks = np.argsort(np.argsort(-given, kind="stable")) / max(1, len(given) - 1)
        scores[held] = np.quantile(scores[trained], ranks) * (1 - given)
    low, likely, high = np.rint(fractions * images).astype(int).tolist()
    return scores, LabelErrors(low, likely, high, images)


def _combine(one: Margins, other: Margins) -> Margins:
    """Return the widest bounds; without a likely fraction in `one`, nothing stands out."""
    low, likely, high = np.minimum(one, other)[0], (one + other)[1] / 2, np.maximum(one, other)[2]
    return np.array([low, likely if one[1] else 0.0, high])


def _break_ties(probabilities: Margins, evidence: Margins) -> Margins:
    ranks = np.argsort(np.argsort(evidence, kind="stable")) / max(1, len(evidence) - 1)
    tied: Margins = probabilities * (1 - _FOR_ORDER + _FOR_ORDER * ranks)
    return tied
