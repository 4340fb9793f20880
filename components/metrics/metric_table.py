"""The table of metrics: configuration, thresholds, reports and cards take their facts from here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MetricName = Literal[
    "accuracy",
    "balanced_accuracy",
    "top_5_accuracy",
    "macro_precision",
    "macro_f1",
    "auc",
    "ece",
    "loss",
]


@dataclass(frozen=True)
class Metric:
    """A metric over all examples, or over a slice of them."""

    name: MetricName
    text: str
    """Name in running text."""
    meaning: str
    """Explanation for the report, a sentence."""
    compute: Callable[[Any], float] | None
    """Takes `Counts`. None: the metric depends on the order of all scores, not on counts."""
    lower_is_better: bool = False
    top: int = 0
    """Number of most probable classes that count as a match; 0 for other metrics."""

    @property
    def title(self) -> str:
        """Name at the start of a line."""
        return self.text[0].upper() + self.text[1:]


ACCURACY, AUC = "accuracy", "auc"

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "accuracy",
            "accuracy",
            "Fraction of the images that are classified correctly.",
            lambda counts: counts.fraction(counts.bins[2].sum()),
        ),
        Metric(
            "balanced_accuracy",
            "balanced accuracy",
            "Mean recall over the classes, so that rare classes count as much as frequent ones.",
            lambda counts: counts.mean_known(counts.recall),
        ),
        Metric(
            "top_5_accuracy",
            "top-5 accuracy",
            "Fraction of the images whose true class is among the five most probable.",
            lambda counts: counts.fraction(counts.top[0]),
            top=5,
        ),
        Metric(
            "macro_precision",
            "macro precision",
            "Mean precision over the classes.",
            lambda counts: counts.mean_seen(counts.precision),
        ),
        Metric(
            "macro_f1",
            "macro F1",
            "Mean F1 over the classes; F1 is the harmonic mean of precision and recall.",
            lambda counts: counts.mean_known(counts.f1),
        ),
        Metric(
            "auc",
            "macro ROC AUC",
            "Mean area under the one-vs-rest ROC curves of the classes; 0.5 is chance.",
            None,
        ),
        Metric(
            "ece",
            "calibration error",
            "Expected calibration error: mean gap between confidence and accuracy. "
            "Lower is better.",
            lambda counts: counts.fraction(abs(counts.bins[1] - counts.bins[2]).sum()),
            lower_is_better=True,
        ),
        Metric(
            "loss",
            "loss",
            "Cross-entropy, in nats. Lower is better.",
            lambda counts: counts.fraction(counts.loss),
            lower_is_better=True,
        ),
    )
}
"""Name → metric, in the order in which they are shown."""

TOP: Mapping[str, int] = {metric.name: metric.top for metric in METRICS.values() if metric.top}
"""Metric → among how many of the most probable classes the true one must be."""
