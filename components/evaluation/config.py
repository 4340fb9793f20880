"""Configuration of the Evaluator: when a model is good enough to push."""

from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge

from components.contract.configuration import Fraction, Number, Text, configuration, require
from components.contract.example import ALL_COLUMNS, SLICINGS
from components.metrics.metric_table import MetricName

_Bound = Annotated[Number, Ge(0)]


@configuration("evaluation.thresholds")
class Threshold:
    """Bounds on a metric, over all images or over a slice of them."""

    metric: MetricName
    """ece: expected calibration error. auc and the macro metrics are means over classes."""

    slice: Text = ""
    """Where the bounds apply. Empty: to all images together. A slicing, such as class: to each of
    its values. A slicing and a value, such as class=cat or format=png: to that slice; a model is
    not blessed if the slice is empty. The accuracy on a class is the recall of that class."""

    at_least: _Bound | None = None
    """Lowest value that is blessed."""

    at_most: _Bound | None = None
    """Highest value that is blessed."""

    max_worsening: _Bound | None = None
    """How much worse than the current model the model may be on the same images."""

    @property
    def slicing(self) -> str:
        """The slicing that `slice` names; empty for all images together."""
        return self.slice.partition("=")[0]

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        name = f"evaluation.thresholds of {self.metric}"
        bounds = {bound: getattr(self, bound) for bound in ("at_least", "at_most", "max_worsening")}
        bounds = {bound: value for bound, value in bounds.items() if value is not None}
        require(bool(bounds), f"{name}: set at_least, at_most or max_worsening.")
        for bound, value in bounds.items():
            # Only the loss may exceed 1.
            require(
                self.metric == "loss" or value <= 1,
                f"{name}: {bound} is {value}: it must be from 0 to 1.",
            )
        low, high = bounds.get("at_least", 0), bounds.get("at_most", float("inf"))
        require(low <= high, f"{name}: at_least is {low}, above at_most, {high}.")


@configuration("evaluation")
class EvaluationConfig:
    """Conditions for blessing a model."""

    min_accuracy: Fraction = 0.0
    """Lowest accuracy that is blessed. Every model must exceed the majority-class accuracy, that of
    always predicting the most frequent class."""

    max_accuracy_drop: Fraction = 0.02
    """How far the accuracy may lie below that of the current model. Not 0: no number of
    images can show that an equally good model is not worse at all."""

    decide_by: Literal["interval", "value"] = "interval"
    """What decides. interval: what is significant at 95 %. The whole confidence interval must lie
    above the majority-class accuracy and, minus the accuracy of the current model, above
    -max_accuracy_drop. value: the measured accuracy must, however few the images. The bounds that
    you set are compared with measured values in either case."""

    slices: list[Text] = field(default_factory=lambda: [*SLICINGS, ALL_COLUMNS])
    """How to divide the evaluated images into slices, each with its own metrics. class: by label.
    size: by the shorter side. luminance: by mean brightness. format, folder: by those of the file.
    A name in `ingest.columns`: by that column. columns: by each column of up to 30 values."""

    thresholds: list[Threshold] = field(default_factory=list)
    """More bounds, such as {metric: accuracy, slice: class, at_least: 0.7}, set in the
    configuration file. Another: {metric: ece, at_most: 0.1, max_worsening: 0.02}."""

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        require(
            len(set(self.slices)) == len(self.slices),
            f"evaluation.slices is {self.slices}: it lists a slicing twice.",
        )
        for threshold in self.thresholds:
            require(
                not threshold.slice or threshold.slicing in self.slices,
                f"evaluation.thresholds: slice is {threshold.slice!r}: {threshold.slicing} is not "
                f"in evaluation.slices.",
            )
