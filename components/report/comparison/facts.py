"""Everything that the page of two runs shows, apart from how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from components.evaluation.metrics.intervals import Interval
from components.evaluation.metrics.slice_metrics import SliceMetrics
from components.images.picture import Picture

Outcome = Literal["better", "worse", "undecided", "apart"]


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs: what was run, on what, with what."""

    name: str
    """A or B."""
    id: str
    output: str
    """Folder that the run wrote to."""
    split: str
    """Judged the model."""
    data: Mapping[str, Any]
    """What names the images, such as their folder and the fingerprint of its listing."""
    examples: Mapping[str, Mapping[str, int]]
    """Split → label → examples."""
    configuration: Mapping[str, Any]
    """`section.field` → value."""
    code: Mapping[str, str]
    """Step → digest of its code."""
    versions: Mapping[str, str]
    """Package → version."""
    model: str = ""
    """URI of the model; the same one if nothing was trained in between."""


class MetricPair(NamedTuple):
    """A metric of both models; NaN where it is not defined."""

    metric: str
    first: float
    second: float
    change: Interval | None
    """Interval of second less first on the same images; None where there is none."""


class Answer(NamedTuple):
    """What a model said of an image."""

    label: str
    probability: float
    """0 to 1."""


@dataclass(frozen=True)
class ChangedImage:
    """An image that one of the models is right about, and the other one not."""

    filename: str
    """Its path in the images of the second run."""
    label: str
    first: Answer
    second: Answer
    picture: Picture | None


@dataclass(frozen=True)
class Changes:
    """Images whose answers changed in one direction."""

    total: int
    shown: tuple[ChangedImage, ...]
    """Those first of which both models are most sure."""


@dataclass(frozen=True)
class Overlap:
    """How the evaluated images of both runs pair."""

    shared: int
    """Images that both were evaluated on, with the same label."""
    relabelled: int
    """Images that both were evaluated on, with another label in each."""
    only_first: int
    """Images that only the first run was evaluated on; those relabelled are not among them."""
    only_second: int

    @property
    def is_whole(self) -> bool:
        """Whether both runs were evaluated on the same images with the same labels."""
        return not (self.relabelled or self.only_first or self.only_second)


@dataclass(frozen=True)
class Paired:
    """Both models on the images that they share."""

    accuracies: tuple[float, float]
    change: Interval
    """Interval of the second accuracy less the first."""
    metrics: tuple[MetricPair, ...]
    recalls: tuple[SliceMetrics, ...]
    """Recall of each class by the second model, against the first; the largest loss first."""
    lost: Changes
    """From right to wrong."""
    won: Changes
    """From wrong to right."""

    @property
    def difference(self) -> float:
        """The second accuracy less the first."""
        return self.accuracies[1] - self.accuracies[0]


class Difference(NamedTuple):
    """A fact that is another one in each run; None where there is none."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class ComparisonFacts:
    """What the page of two runs says."""

    first: ComparedRun
    second: ComparedRun
    overlap: Overlap
    paired: Paired | None
    """None if the runs share no image."""
    whole: tuple[MetricPair, ...]
    """Metrics of each run on all of its images: not the same ones, and no difference."""
    outcome: Outcome
    """Of the second run against the first; apart: they share no image."""
    headline: str
    """The verdict in a sentence."""
    reasons: tuple[str, ...]
    """Each a sentence."""
