"""How well a model's output `known` tells images apart that it can have no label for.

False alarms are images like those of training that are called unknown. Images of classes that were
left out of a training stand for everything unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from components.contract.confidence import CONFIDENCE, Interval, proportion_interval

Floats = NDArray[np.float64]
Scores = NDArray[np.floating[Any]]

_RESAMPLES = 1000
_SEED = 0

KINDS = ("score", "softmax")
"""Scores that are compared: that of `known`, and the highest probability."""


@dataclass(frozen=True)
class LeftOutClass:
    """A class, judged by a training that has not seen it."""

    label: str
    images: int
    auroc: float
    """Chance that one of its images has a lower score than an image of the other classes."""
    found: float
    """Fraction of its images that are called unknown, at the wanted rate of false alarms."""


@dataclass(frozen=True)
class LeftOut:
    """All classes, each left out of one of several trainings."""

    trainings: int = 0
    images: int = 0
    """Number of images of the eval split that all classes are compared with."""
    auroc: float | None = None
    """Mean over the classes."""
    interval: Interval | None = None
    softmax: float | None = None
    """The same mean with the highest probability as the score."""
    found: float | None = None
    """Mean over the classes."""
    classes: tuple[LeftOutClass, ...] = ()
    reason: str = ""
    """Why there were no such trainings, as a clause."""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """Read the fields from JSON."""
        interval = facts["interval"] and Interval(**facts["interval"])
        classes = tuple(LeftOutClass(**of) for of in facts["classes"])
        return cls(**{**facts, "interval": interval, "classes": classes})


@dataclass(frozen=True)
class Unknowns:
    """The threshold of `known`, and what it amounts to."""

    wanted: float
    """Rate of false alarms, 0 to 1, for which it was fitted."""
    images: int
    """Number of images it was fitted on."""
    threshold: float | None
    """Least score of a known image; None if there were too few images."""
    score: str
    """What the score is, as a clause."""
    found: float | None = None
    """Rate of false alarms on the evaluated images; None if they are those of the fit."""
    interval: Interval | None = None
    left_out: LeftOut | None = None
    """None if it was not asked for."""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """Read what the training wrote."""
        left_out = facts["left_out"] and LeftOut.read(facts["left_out"])
        return cls(**{**facts, "left_out": left_out})

    def measure(self, known_scores: Scores | None, *, held_out: bool) -> Self:
        """Add the false alarms on evaluated images, unless the threshold was fitted on them."""
        if self.threshold is None or known_scores is None or not held_out or not len(known_scores):
            return self
        alarms = int((known_scores < np.float32(self.threshold)).sum())
        examples = len(known_scores)
        interval = proportion_interval(alarms, examples)
        return replace(self, found=alarms / examples, interval=interval)


@dataclass(frozen=True, eq=False)
class Judged:
    """The scores of a training without some classes, of both kinds."""

    known: Mapping[str, Scores]
    """Kind → of the images of the eval split, [images]; NaN for the classes left out."""
    unknown: Mapping[int, Mapping[str, Scores]]
    """Label id of a class that was left out → kind → of its images."""


def compare_left_out(trainings: Sequence[Judged], labels: Sequence[str], *, rate: float) -> LeftOut:
    """Compare the images of each class with those that the training without it knows.

    The interval is that of a bootstrap over classes and over images of the eval split (Owen, 2007,
    "The pigeonhole bootstrap"), as a further class would differ from those at hand.
    """
    below: dict[str, list[Floats]] = {kind: [] for kind in KINDS}
    classes = []
    for training in trainings:
        threshold = np.nanquantile(training.known["score"], rate, method="lower")
        for number, scores in training.unknown.items():
            for kind in KINDS:
                below[kind].append(_count_below(scores[kind], training.known[kind]))
            found = float((scores["score"] < threshold).mean())
            area = float(np.nanmean(below["score"][-1]))
            classes.append(LeftOutClass(labels[number], len(scores["score"]), area, found))
    shares = np.stack(below["score"])
    return LeftOut(
        len(trainings),
        shares.shape[1],
        float(np.mean([of.auroc for of in classes])),
        _resample(shares),
        float(np.mean([np.nanmean(of) for of in below["softmax"]])),
        float(np.mean([of.found for of in classes])),
        tuple(sorted(classes, key=lambda of: of.auroc)),
    )


def _count_below(unknown: Scores, known: Scores) -> Floats:
    """Return the fraction of unknown images with a lower score than each known one, [known].

    Equal scores count half: the mean is the area under the ROC curve. NaN stays NaN.
    """
    ordered = np.sort(unknown)
    places = [np.searchsorted(ordered, known, side=side) for side in ("left", "right")]
    shares: Floats = np.mean(places, axis=0) / len(unknown)
    return np.where(np.isnan(known), np.nan, shares)


def _resample(shares: Floats) -> Interval | None:
    """Return the interval of the mean over classes of the means of `shares`, [classes, known]."""
    random, defined = np.random.default_rng(_SEED), ~np.isnan(shares)
    rows, columns = (
        random.multinomial(size, np.full(size, 1 / size), _RESAMPLES).astype(np.float64)
        for size in shares.shape
    )
    with np.errstate(invalid="ignore"):
        areas = (columns @ np.nan_to_num(shares).T) / (columns @ defined.T)
    means: NDArray[np.float64] = np.nansum(areas * rows, axis=1)
    means /= np.where(np.isnan(areas), 0, rows).sum(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high))
