"""The facts of a report: `inputs` gathers them, `page` and `card` present them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.contract.example import EVAL, TEST, TRAIN, count_folds, name_folds, sort_splits
from components.contract.model_files import INPUT_WAIT_FRACTION, PHASE, RATE
from components.metrics.calibration import Unknowns
from components.metrics.classification_metrics import Comparison, ModelMetrics
from components.metrics.evaluation_files import FormatResult, Verdict
from components.report.shown import (
    ClassSample,
    PredictedImage,
    Reject,
    SuspectFacts,
    Without,
)

MATRIX_CLASSES = 50
"""Most classes of a confusion matrix: a larger one is unreadable, and too large for Kubeflow."""


# Names such as span-3, v01, 2026 or 2026-11-20: their prefix, and their last number.
_NUMBERED = re.compile(r"(?:\d+[-_.])*([A-Za-z]*)[-_]?(\d+)")


@dataclass(frozen=True)
class RunHeader:
    """The run: its data, code, configuration and versions."""

    pipeline: str
    data: str
    """Folder of the images, a path or a URL."""
    fingerprint: str
    """Of the listing of the folder; "" if unknown."""
    span: int | None
    version: int | None
    code: str
    config: Mapping[str, Mapping[str, Any]]
    """Section → field → value, as the steps received them."""
    versions: Mapping[str, str]
    started: str
    """Start of training, ISO 8601 in UTC."""
    training_seconds: float

    @property
    def title(self) -> str:
        """Name of the data: its last folder that is not the number of a span, version or day."""
        numbers = {self.span, self.version}
        for name in reversed(self.data.rstrip("/").split("/")):
            digits = _NUMBERED.fullmatch(name) if self.span is not None else None
            if name and not (digits and (not digits[1] or int(digits[2]) in numbers)):
                return name
        return self.pipeline


@dataclass(frozen=True)
class ExportedModel:
    """Size of the model."""

    parameters: int
    bytes: int
    """Size of all files of the served model."""


class TrainedPhase(NamedTuple):
    """A phase of training, as `training.json` describes it."""

    name: str
    """train, head or fine_tune."""
    epochs: int
    diverged: bool = False
    on_features: bool = False
    """Whether it read what frozen layers had computed instead of images."""
    exported: bool = True
    """Whether its weights were exported, those of its best or last epoch."""


class KeptEpoch(NamedTuple):
    """The epoch whose weights were kept."""

    epoch: int
    """From 1 on."""
    metric: str
    """Metric on the eval split that ranks epochs."""
    value: float


def _find_best(metric: str, values: NDArray[np.float64]) -> KeptEpoch | None:
    """Return the first of the best epochs; None if all values are NaN."""
    if not np.isfinite(values).any():
        return None
    best = int(np.nanargmin(values) if metric == "loss" else np.nanargmax(values))
    return KeptEpoch(best + 1, metric, float(values[best]))


@dataclass(frozen=True)
class ReportFacts:
    """Everything in the page, the card and `metrics.json`."""

    header: RunHeader
    split: str
    """The evaluated split."""
    verdict: Verdict
    majority_accuracy: float
    """Accuracy of always predicting the most frequent class of the split, 0 to 1."""
    balance: Mapping[str, Mapping[str, int]]
    """Split → label → examples."""
    files: Mapping[str, Any]
    """`summary.json` of ingest."""
    anomalies: Mapping[str, Sequence[str]]
    """Split → anomalies in words."""
    history: Mapping[str, Sequence[float]]
    """Metric → its value in every epoch, including `input_wait_fraction`."""
    comparison: Comparison
    model: ExportedModel
    phases: tuple[TrainedPhase, ...]
    search: Mapping[str, Any] | None = None
    """`search` of `training.json`."""
    selection_folds: int = 0
    """Number of folds that selected the weights; 0: the eval split did."""
    input_advice: str = ""
    """What to change if training waited for its input."""
    unknowns: Unknowns | None = None
    samples: tuple[ClassSample, ...] = ()
    rejects: tuple[Reject, ...] = ()
    """The first of `files["rejected"]`."""
    mistakes: tuple[PredictedImage, ...] = ()
    """The most confident ones first."""
    images: tuple[PredictedImage, ...] = ()
    suspects: SuspectFacts | None = None
    """None if the trainer described no images."""
    corrected: Without | None = None
    """Images that corrections relabeled; None if there are none."""
    leaks: Without | None = None
    """Images with copies among the training images; None if there are none."""
    formats: tuple[FormatResult, ...] = ()
    baseline_version: str = ""
    notes: tuple[str, ...] = ()

    def find_option(self, name: str) -> Any:
        """Return the value of an option, `section.field`."""
        section, _, field = name.partition(".")
        return self.header.config[section][field]

    @property
    def is_balanced(self) -> bool:
        """Whether training weighs or draws all classes alike."""
        return bool(self.find_option("training.balance") != "none")

    def __post_init__(self) -> None:
        # By use: train, eval, test.
        for name in ("balance", "anomalies"):
            object.__setattr__(self, name, sort_splits(getattr(self, name)))

    @property
    def waits(self) -> list[float]:
        """Fraction of each epoch spent waiting for input, in the last phase of training."""
        return self._in_last_phase(INPUT_WAIT_FRACTION)

    @property
    def images_per_second(self) -> float:
        """Training speed in the median epoch, without the first one; NaN if unknown."""
        rates = self._in_last_phase(RATE)
        return float(np.median(rates[1:] or rates)) if rates else math.nan

    def _in_last_phase(self, metric: str) -> list[float]:
        # Earlier phases may not read images.
        phases = self.history.get(PHASE, ())
        first = list(phases).index(phases[-1]) if phases else 0
        return [v for v in self.history.get(metric, ())[first:] if math.isfinite(v)]

    @property
    def keeps_last(self) -> bool:
        """Whether the last epoch was exported, whatever the eval split says.

        From pretrained weights, it says whether fine-tuning is kept.
        """
        if (
            any(p.name == "head" for p in self.phases)
            and self.find_option("transfer.unfreeze") != "none"
        ):
            return False
        return bool(self.find_option("training.keep") == "last")

    @property
    def kept_epoch(self) -> KeptEpoch | None:
        """The exported epoch; None if the history does not tell."""
        metric, values = self._watched
        first = 0
        for phase in self.phases:
            part = values[first : first + phase.epochs]
            if not phase.exported:
                part[:] = math.nan
            elif self.find_option("training.keep") == "last":
                part[: np.flatnonzero(np.isfinite(part)).max(initial=0)] = math.nan
            first += phase.epochs
        return _find_best(metric, values)

    @property
    def best_epoch(self) -> KeptEpoch | None:
        """The first of the best epochs; None if the history does not tell."""
        return _find_best(*self._watched)

    @property
    def _watched(self) -> tuple[str, NDArray[np.float64]]:
        """`training.metric`, and its value in each epoch; NaN if the network diverged."""
        metric = self.find_option("training.metric")
        values = np.array(self.history.get(f"val_{metric}", ()), np.float64)
        # A network whose loss is NaN still has an accuracy, that of predicting the first class.
        values[~np.isfinite(np.array(self.history.get("val_loss", values), np.float64))] = math.nan
        return metric, values

    @property
    def metrics(self) -> ModelMetrics:
        """Metrics of the new model."""
        return self.comparison.metrics

    @property
    def classes(self) -> list[str]:
        """The labels of all splits, sorted."""
        return sorted({label for counts in self.balance.values() for label in counts})

    @property
    def folds(self) -> int:
        """Number of folds whose models the scores are of; 0: they are of the exported model."""
        return count_folds(self.split)

    @property
    def judged_on(self) -> str:
        """The images of the scores, such as "the test split"."""
        return f"{self.folds} folds of all images" if self.folds else f"the {self.split} split"

    @property
    def selection_split(self) -> str:
        """The split that selected the weights, or the name of the folds that did."""
        return name_folds(self.selection_folds) if self.selection_folds else EVAL

    @property
    def selected_on(self) -> str:
        """The images that selected the weights, such as "the eval split"."""
        return self.selection_split if self.selection_folds else f"the {EVAL} split"

    @property
    def has_known(self) -> bool:
        """Whether the model answers whether an image is known."""
        return self.unknowns is not None and self.unknowns.threshold is not None

    @property
    def false_alarms(self) -> str:
        """Say how often `known` calls images unknown by mistake; "" without it."""
        if not (unknowns := self.unknowns):
            return ""
        wanted, fitted = f"{unknowns.wanted:.1%}", f"{unknowns.images:,} images"
        if self.selection_folds:
            fitted += ", each by a model that has not seen it"
        else:
            fitted += f" of the {EVAL} split"
        if unknowns.threshold is None:
            return (
                f"Unknown-image detection is off: {unknowns.images:,} images are too few for a "
                f"{100 * unknowns.wanted:g} % false-alarm rate."
            )
        fit = (
            f"The model answers whether an image is known. Its score says how much nearer the "
            f"image is to a class than to all images; the threshold was fitted to {wanted} false "
            f"alarms on {fitted}"
        )
        limit = (
            "Other images, such as noise or photographs of other things, may still be called known."
        )
        if unknowns.found is None or not (interval := unknowns.interval):
            return f"{fit}; no other images were left to measure it on. {limit}"
        return (
            f"{fit}. Of the images of {self.judged_on}, {unknowns.found:.1%} (95% CI "
            f"{interval.low:.1%} to {interval.high:.1%}) are called unknown by mistake. {limit}"
        )

    @property
    def is_optimistic(self) -> bool:
        """Whether the images that picked the weights, or in a search the training, judge them."""
        picked = bool(self.search) or (self.split == EVAL and not self.keeps_last)
        return picked and self.split != TEST

    @property
    def roles_of_splits(self) -> str:
        """Explain which split selected the weights, and which one evaluated them."""
        if self.is_optimistic:
            return (
                f"The same images, {self.judged_on}, pick and score the model, so the scores are "
                "slightly optimistic."
            )
        if self.folds:
            return (
                f"The scores are cross-validated over {self.folds} folds: each image was judged by "
                "a model that had not seen it. The exported model was trained on all images."
            )
        if self.selection_folds:
            best = f"as many epochs as were best on {self.selection_folds} folds of them"
            length = "all epochs" if self.keeps_last else best
            trained = f"The model was trained on all {TRAIN} and {EVAL} images, for {length}"
        else:
            how = f"were selected on {self.selected_on}"
            trained = f"The weights {'are those of the last epoch' if self.keeps_last else how}"
        return (
            f"{trained}; the scores are from the {self.split} split, which training has not seen."
        )
