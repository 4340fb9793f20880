"""The facts of a report: `inputs` gathers them, `page` and `card` present them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.contract.example import EVAL, TEST, TRAIN, count_folds, name_folds, sort_splits
from components.metrics.classification_metrics import Comparison, ModelMetrics
from components.metrics.evaluation_files import FormatResult, Verdict
from components.metrics.score_metrics import Unknowns
from components.report.shown import ClassSample, PredictedImage, Reject, SuspectFacts, Without

MATRIX_CLASSES = 50
"""Most classes of a confusion matrix: a larger one is unreadable, and too large for Kubeflow."""


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
        """Name of the folder, or of the pipeline if the folder is one of many spans."""
        folder = self.data.rstrip("/").rpartition("/")[2]
        return folder if folder and self.span is None else self.pipeline


class TrainedPhase(NamedTuple):
    """A phase of training, as `training.json` describes it."""

    name: str
    """train, head or fine_tune."""
    epochs: int
    best_epoch: int = 0
    """The epoch whose weights were kept, from 1 on; 0: none."""
    diverged: bool = False
    exported: bool = True
    """Whether its weights were exported."""


class KeptEpoch(NamedTuple):
    """The epoch whose weights were kept."""

    epoch: int
    """From 1 on."""
    metric: str
    """Metric on the eval split that ranks epochs."""
    value: float


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
    """Metric → its value in every epoch."""
    comparison: Comparison
    model: Mapping[str, int]
    """`model.json` of training."""
    phases: tuple[TrainedPhase, ...]
    input_facts: Mapping[str, Any]
    """`input.json` of training."""
    search: Mapping[str, Any] | None = None
    """`search` of `training.json`."""
    selection_folds: int = 0
    """Number of folds that selected the weights; 0: the eval split did."""
    unknowns: Unknowns | None = None
    samples: tuple[ClassSample, ...] = ()
    rejects: tuple[Reject, ...] = ()
    """The first of `files["rejected"]`."""
    mistakes: tuple[PredictedImage, ...] = ()
    """The most confident ones first."""
    images: tuple[PredictedImage, ...] = ()
    suspects: SuspectFacts | None = None
    """None if the trainer described no images."""
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
        metric, first = self.find_option("training.metric"), 0
        for phase in self.phases:
            if phase.exported and phase.best_epoch:
                epoch = first + phase.best_epoch
                value = self.history.get(f"val_{metric}", ())[epoch - 1 : epoch]
                return KeptEpoch(epoch, metric, *value) if any(map(math.isfinite, value)) else None
            first += phase.epochs
        return None

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
