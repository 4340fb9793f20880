"""When a model is good enough to be pushed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from components.contract.configuration import require
from components.contract.kinds import check_types

MetricName = Literal[
    "accuracy",
    "balanced_accuracy",
    "top_3_accuracy",
    "top_5_accuracy",
    "macro_precision",
    "macro_recall",
    "macro_f1",
    "auc",
    "ece",
    "loss",
]

Slicing = Literal["class", "size", "luminance", "format", "folder"]


@dataclass(frozen=True)
class Threshold:
    """A bound on a metric, on all images or on a slice of them."""

    metric: MetricName
    """ece is the expected calibration error; auc and the macro metrics are means over classes."""

    slice: str = ""
    """Where the bound must hold. Empty: on all images together. A slicing, such as class: on each
    of its values. A slicing and a value, such as class=cat or format=png: on that slice; a model is
    not blessed if no image is in it. The accuracy on a class is the recall of that class."""

    at_least: float | None = None
    """Lowest value with which a model is blessed."""

    at_most: float | None = None
    """Highest value with which a model is blessed."""

    max_worsening: float | None = None
    """How much worse than the model in use the model may be, on the same images: lower, or higher
    for ece and loss."""

    @property
    def slicing(self) -> str:
        """The slicing that `slice` names; empty for all images together."""
        return self.slice.partition("=")[0]

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "evaluation.thresholds")
        name = f"evaluation.thresholds of {self.metric}"
        require(
            not self.slice or self.slicing in get_args(Slicing),
            f"{name}: slice is {self.slice!r}: it must be one of {', '.join(get_args(Slicing))}, "
            f"or one of them and a value, such as class=cat.",
        )
        bounds = (self.at_least, self.at_most, self.max_worsening)
        require(
            any(bound is not None for bound in bounds),
            f"{name}: set at_least, at_most or max_worsening.",
        )
        # The loss alone has no upper end.
        most = float("inf") if self.metric == "loss" else 1.0
        limit = "not be negative" if self.metric == "loss" else "be from 0 to 1"
        for bound in ("at_least", "at_most", "max_worsening"):
            value = getattr(self, bound)
            require(
                value is None or 0 <= value <= most, f"{name}: {bound} is {value}: it must {limit}."
            )
        lowest = 0.0 if self.at_least is None else self.at_least
        highest = float("inf") if self.at_most is None else self.at_most
        require(lowest <= highest, f"{name}: at_least is {lowest}, above at_most, {highest}.")


@dataclass(frozen=True)
class EvaluationConfig:
    """When a model is good enough to be pushed."""

    min_accuracy: float = 0.0
    """Lowest accuracy, 0 to 1, with which a model is blessed. A model must in any case reach the
    majority-class accuracy, that of always answering with the most frequent class."""

    max_accuracy_drop: float = 0.02
    """How far, 0 to 1, the accuracy may lie below that of the model in use. Not 0: to show that a
    model as good as the one in use is not worse at all takes any number of images."""

    decide_by: Literal["interval", "value"] = "interval"
    """What has to lie above the majority-class accuracy, and, less the accuracy of the model in
    use, above -max_accuracy_drop. interval: the whole interval of 95 % confidence, so that no model
    is blessed by chance. value: the measured accuracy alone, however few images it is measured
    on. Bounds that you set are compared with measured values in either case."""

    slices: list[Slicing] = field(default_factory=lambda: list(get_args(Slicing)))
    """Slicings of the images, on each slice of which the metrics are measured: class; size (shorter
    side); luminance (mean brightness); format of the file; folder that the file came from."""

    smoke_images: int = 8
    """Images that the exported model, loaded in a process of its own, has to answer as it was
    evaluated before it is blessed. 0: none, and no such process."""

    smoke_seconds: float = 300.0
    """Time limit of that process, from the beginning of the evaluation, seconds."""

    thresholds: list[Threshold] = field(default_factory=list)
    """More bounds, set in the configuration file, such as {metric: accuracy, slice: class,
    at_least: 0.7} or {metric: ece, at_most: 0.1, max_worsening: 0.02}."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "evaluation")
        for name in ("min_accuracy", "max_accuracy_drop"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"evaluation.{name} is {value}: it must be from 0 to 1.")
        require(
            len(set(self.slices)) == len(self.slices),
            f"evaluation.slices is {self.slices}: name each slicing once.",
        )
        require(
            self.smoke_images >= 0,
            f"evaluation.smoke_images is {self.smoke_images}: it must not be negative.",
        )
        require(
            self.smoke_seconds > 0,
            f"evaluation.smoke_seconds is {self.smoke_seconds}: it must be above 0.",
        )
        for threshold in self.thresholds:
            require(
                not threshold.slice or threshold.slicing in self.slices,
                f"evaluation.thresholds: slice is {threshold.slice!r}: {threshold.slicing} is not "
                f"in evaluation.slices.",
            )
