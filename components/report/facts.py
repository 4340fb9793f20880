"""Everything the report shows, apart from how: `sources` gathers it, `page` and `card` write it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from components.contract.example import EVAL, sort_splits
from components.contract.model_files import INPUT_WAIT_FRACTION, PHASE, RATE
from components.evaluation.lite.result import LiteResult
from components.evaluation.metrics.calibration import Reliability, Scaling
from components.evaluation.metrics.classification_metrics import Comparison, ModelMetrics
from components.evaluation.verdict import Verdict
from components.images.picture import Picture
from components.report.run_header import ExportedModel, RunHeader

MATRIX_CLASSES = 50
"""Most classes of the confusion matrix on the page: more make one that nobody looks at."""


@dataclass(frozen=True)
class ClassSample:
    """A few training images of a class."""

    label: str
    seen: tuple[Picture, ...]
    """The images as the model sees them, without augmentation."""
    augmented: tuple[Picture, ...]
    """The same images as a training step may see them."""

    @property
    def unchanged(self) -> bool:
        """Whether training does not augment them."""
        return self.augmented == self.seen


@dataclass(frozen=True)
class Reject:
    """A file that is not a usable image."""

    path: str
    category: str
    reason: str
    picture: Picture | None
    """What can be seen of it, if anything."""


@dataclass(frozen=True)
class SameImage:
    """An image that several files hold, byte for byte."""

    paths: tuple[str, ...]
    labels: tuple[str, ...]
    """More than one is a conflict."""
    splits: tuple[str, ...]
    """More than one: the model is tested on what it was trained on."""
    picture: Picture | None


@dataclass(frozen=True)
class AnsweredImage:
    """An image of the split that judged the model, and what the model says of it."""

    filename: str
    label: str
    predicted: str
    confidence: float
    """Probability of `predicted`, 0 to 1."""
    probability: float
    """Probability of `label`, 0 to 1."""
    picture: Picture | None
    heat_map: Picture | None = None
    """Where the image spoke for `predicted`, over what the model saw of it."""

    @property
    def is_right(self) -> bool:
        """Whether the model is right about it."""
        return self.label == self.predicted


class KeptEpoch(NamedTuple):
    """The epoch whose weights the model has."""

    epoch: int
    """From 1 on."""
    metric: str
    """That chose it, on the eval split."""
    value: float


class ConfidenceBin(NamedTuple):
    """The images whose answers have about the same confidence."""

    low: float
    high: float
    examples: int
    confidence: float
    """Mean; NaN for no examples."""
    accuracy: float
    """NaN for no examples."""


@dataclass(frozen=True)
class ReportFacts:
    """What the page, the card and `metrics.json` say."""

    header: RunHeader
    split: str
    """The split that judged the model: metrics and verdict are measured on it."""
    verdict: Verdict
    majority_accuracy: float
    """Accuracy of always answering with the most frequent class of the split, 0 to 1."""
    balance: Mapping[str, Mapping[str, int]]
    """Split → label → examples."""
    files: Mapping[str, Any]
    """`summary.json` of ingest: files, examples, rejected, skipped, duplicates, …"""
    anomalies: Mapping[str, Sequence[str]]
    """Split → what ExampleValidator found, in words; empty lists when nothing."""
    history: Mapping[str, Sequence[float]]
    """Metric → its value in every epoch, `input_wait_fraction` among them."""
    comparison: Comparison
    model: ExportedModel = field(default_factory=ExportedModel)
    scaling: Scaling | None = None
    """Of the model's logits, if it was calibrated after training."""
    samples: tuple[ClassSample, ...] = ()
    """Samples of each class; of some classes only when there are many."""
    rejects: tuple[Reject, ...] = ()
    """The first rejected files; `files["rejected"]` says how many there are."""
    same_images: tuple[SameImage, ...] = ()
    """The first images that several files hold, label conflicts before others."""
    mistakes: tuple[AnsweredImage, ...] = ()
    """The worst mistakes, the most confident first."""
    images: tuple[AnsweredImage, ...] = ()
    """Images to browse: of each pair of true and predicted class the most informative ones."""
    lite: tuple[LiteResult, ...] = ()
    """Small versions of the model."""
    baseline_version: str = ""
    """Version of the model in use; "" when there is none."""
    notes: tuple[str, ...] = ()
    """What a reader should know of this report, such as what was left out."""

    def __post_init__(self) -> None:
        """Put splits in the order in which they are used, so that train is shown before eval."""
        for name in ("balance", "anomalies"):
            object.__setattr__(self, name, sort_splits(getattr(self, name)))

    @property
    def waits(self) -> list[float]:
        """Fraction of each epoch spent waiting for input, in the last phase of training.

        Earlier ones may have read features from memory, not images.
        """
        return self._in_last_phase(INPUT_WAIT_FRACTION)

    @property
    def images_per_second(self) -> float:
        """Images trained on per second, the median epoch, without the first one; NaN: not known."""
        rates = self._in_last_phase(RATE)
        return float(np.median(rates[1:] or rates)) if rates else math.nan

    def _in_last_phase(self, metric: str) -> list[float]:
        phases = self.history.get(PHASE, ())
        first = list(phases).index(phases[-1]) if phases else 0
        return [v for v in self.history.get(metric, ())[first:] if math.isfinite(v)]

    @property
    def kept_epoch(self) -> KeptEpoch | None:
        """The first of the best epochs; None if the history does not tell."""
        metric = self.header.config.get("training", {}).get("metric", "loss")
        values = np.array(self.history.get(f"val_{metric}", ()), np.float64)
        if not np.isfinite(values).any():
            return None
        best = int(np.nanargmin(values) if metric == "loss" else np.nanargmax(values))
        return KeptEpoch(best + 1, metric, float(values[best]))

    @property
    def metrics(self) -> ModelMetrics:
        """Metrics of the new model."""
        return self.comparison.metrics

    @property
    def confidence_bins(self) -> list[ConfidenceBin]:
        """How sure the model is and how often it is right, from low to high confidence."""
        return list_bins(self.metrics.reliability)

    @property
    def classes(self) -> list[str]:
        """The labels of all splits, sorted."""
        return sorted({label for counts in self.balance.values() for label in counts})

    @property
    def selection_split(self) -> str:
        """The split on which training chose the epoch whose weights the model has."""
        return EVAL

    @property
    def is_optimistic(self) -> bool:
        """Whether the split that judged the model is the one that chose its weights."""
        return self.split == self.selection_split

    @property
    def roles_of_splits(self) -> str:
        """Say which split chose the weights, which one judged them, and what that means."""
        chose = f"The {self.selection_split} split chose the epoch whose weights were kept"
        if self.is_optimistic:
            return (
                f"{chose}, and judged the model too: the numbers are optimistic, because the same "
                "images chose the weights."
            )
        return f"{chose}; the {self.split} split, which training has not seen, judged the model."


def list_bins(bins: Reliability) -> list[ConfidenceBin]:
    """Return the bins, from low to high confidence."""
    columns = (bins.edges[:-1], bins.edges[1:], bins.examples, bins.confidence, bins.accuracy)
    return [ConfidenceBin(*row) for row in zip(*(of.tolist() for of in columns), strict=True)]
