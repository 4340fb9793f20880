"""Configuration of the Evaluator: when a model is good enough to be pushed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from components.contract.configuration import require
from components.contract.kinds import check_types
from components.evaluation.metrics.metric_table import MetricName

Slicing = Literal["class", "size", "luminance", "format", "folder"]


@dataclass(frozen=True)
class Threshold:
    """Bounds on a metric, over all images or over a slice of them."""

    metric: MetricName
    """ece: expected calibration error. auc and the macro metrics are means over classes."""

    slice: str = ""
    """Where the bounds apply. Empty: to all images together. A slicing, such as class: to each of
    its values. A slicing and a value, such as class=cat or format=png: to that slice; a model is
    not blessed if the slice is empty. The accuracy on a class is the recall of that class."""

    at_least: float | None = None
    """Lowest value that is blessed."""

    at_most: float | None = None
    """Highest value that is blessed."""

    max_worsening: float | None = None
    """How much worse than the model in use a model may be on the same images: lower, or higher for
    ece and loss."""

    @property
    def slicing(self) -> str:
        """The slicing of `slice`; empty for all images together."""
        return self.slice.partition("=")[0]

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "evaluation.thresholds")
        name = f"evaluation.thresholds of {self.metric}"
        require(
            not self.slice or self.slicing in get_args(Slicing),
            f"{name}: slice is {self.slice!r}: it must be one of {', '.join(get_args(Slicing))}, "
            f"alone or with a value, such as class=cat.",
        )
        bounds = (self.at_least, self.at_most, self.max_worsening)
        require(
            any(bound is not None for bound in bounds),
            f"{name}: set at_least, at_most or max_worsening.",
        )
        # Only the loss has no upper limit.
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
    """Conditions for blessing a model."""

    min_accuracy: float = 0.0
    """Lowest accuracy, 0 to 1, that is blessed. Every model must at least reach the majority-class
    accuracy, that of always predicting the most frequent class."""

    max_accuracy_drop: float = 0.02
    """How far, 0 to 1, the accuracy may lie below that of the model in use. Not 0: no number of
    images can show that an equally good model is not worse at all."""

    decide_by: Literal["interval", "value"] = "interval"
    """What must lie above the majority-class accuracy and, minus the accuracy of the model in use,
    above -max_accuracy_drop. interval: the whole 95% confidence interval, so that no model is
    blessed by chance. value: the measured accuracy, however few the images. The bounds that you set
    are compared with measured values in either case."""

    slices: list[Slicing] = field(default_factory=lambda: list(get_args(Slicing)))
    """Slicings to measure the metrics on: class; size (shorter side); luminance (mean brightness);
    format of the file; folder of the file."""

    smoke_images: int = 8
    """Images of the smoke test: the exported model, loaded in a separate process, must predict them
    as in the evaluation to be blessed. 0: no smoke test."""

    smoke_seconds: float = 300.0
    """Timeout of the smoke test, from the start of the evaluation, seconds."""

    thresholds: list[Threshold] = field(default_factory=list)
    """Further thresholds, set in the configuration file, such as {metric: accuracy, slice: class,
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
