"""Realistic metrics and comparisons without a model."""

from __future__ import annotations

import math

import numpy as np

from components.evaluation.metrics.calibration import Bins, ConfidenceBin
from components.evaluation.metrics.classification_metrics import Comparison, ModelMetrics
from components.evaluation.metrics.curves import ClassCurves, PrecisionRecall, Roc
from components.evaluation.metrics.intervals import Interval
from components.evaluation.metrics.metric_table import METRICS
from components.evaluation.metrics.predictions import Floats, Ints
from components.evaluation.metrics.slice_metrics import ConfusedPair, SliceMetrics


def make_confusion(classes: int, each: int, *, accuracy: float, seed: int = 0) -> Ints:
    """Draw a confusion matrix with `each` examples per class; some classes are harder."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(classes), each)
    hard = np.clip(accuracy + random.normal(0, (1 - accuracy) / 2, classes), 0, 1)
    wrong = (truth + random.geometric(0.4, len(truth))) % classes
    answers = np.where(random.random(len(truth)) < hard[truth], truth, wrong)
    return np.bincount(truth * classes + answers, minlength=classes**2).reshape(classes, classes)


def make_metrics(labels: tuple[str, ...], confusion: Ints, *, shift: float = 0) -> ModelMetrics:
    right, support = np.diag(confusion), confusion.sum(axis=1)
    with np.errstate(invalid="ignore"):
        precision, recall = right / confusion.sum(axis=0), right / support
        f1 = 2 * right / (confusion.sum(axis=0) + support)
    accuracy = right.sum() / max(1, confusion.sum())
    scalars = dict.fromkeys(METRICS, float(accuracy)) | {
        "balanced_accuracy": float(np.nanmean(recall)) if support.any() else math.nan,
        "top_3_accuracy": float(accuracy**0.3),
        "top_5_accuracy": float(accuracy**0.1),
        "macro_f1": float(np.nanmean(f1)) if confusion.any() else math.nan,
        "auc": 0.98 + shift,
        "ece": 0.041 - shift,
        "loss": 0.31 - shift,
    }
    areas = np.where(support > 0, 1 - 0.3 * (1 - recall), np.nan)
    return ModelMetrics(
        labels=labels,
        scalars=scalars,
        confusion=confusion,
        precision=precision,
        recall=recall,
        f1=f1,
        auc=areas,
        average_precision=np.square(areas),
        reliability=make_reliability(int(confusion.sum())),
        calibration=make_calibration(int(confusion.sum())),
        roc=make_roc(0.97),
    )


def make_reliability(examples: int) -> Bins:
    shares = np.linspace(0, 1, 15) ** 3
    counts = np.round(shares / shares.sum() * examples).astype(np.int64)
    return make_bins(np.linspace(0, 1, 16), counts)


def make_calibration(examples: int) -> Bins:
    """Bins of equal size, of an overconfident model."""
    edges = np.linspace(0, 1, 8 + 1) ** 0.4
    return make_bins(edges, np.full(8, examples // 8)) if examples else ()


def make_bins(edges: Floats, examples: Ints) -> Bins:
    middle = np.where(examples > 0, (edges[:-1] + edges[1:]) / 2, np.nan)
    columns = (edges[:-1], edges[1:], examples, middle, middle**1.3)
    return tuple(ConfidenceBin(*row) for row in zip(*(of.tolist() for of in columns), strict=True))


def make_roc(area: float, positive: str | None = None) -> Roc:
    rate = np.linspace(0, 1, 60)
    return Roc(rate, rate ** (1 / area - 1), rate[::-1], area, positive)


def make_curves(label: str, area: float) -> ClassCurves:
    recall = np.linspace(1, 0, 60)
    precision = PrecisionRecall(recall, 1 - (1 - area) * recall**3 * 2, area**2)
    return ClassCurves(label, make_roc(area), precision)


def make_comparison(
    labels: tuple[str, ...], *, each: int, accuracy: float, compared: bool = True
) -> Comparison:
    confusion = make_confusion(len(labels), each, accuracy=accuracy)
    measures = make_metrics(labels, confusion)
    before = make_confusion(len(labels), each, accuracy=accuracy - 0.03, seed=1)
    baseline = make_metrics(labels, before, shift=-0.01) if compared else None
    wide = 1 / math.sqrt(max(1, confusion.sum()))
    intervals = {
        name: Interval(max(0, v - wide), min(1, v + wide)) for name, v in measures.scalars.items()
    }
    differences = {
        name: value - baseline.scalars[name] if baseline else math.nan
        for name, value in measures.scalars.items()
    }
    changes = {name: Interval(d - wide, d + wide) for name, d in differences.items()}
    return Comparison(
        metrics=measures,
        intervals=intervals,
        baseline=baseline,
        changes=changes if baseline else {},
        curves=tuple(make_curves(label, 0.8 + 0.015 * i) for i, label in enumerate(labels[:6])),
        slices=make_slices(labels, accuracy, compared=compared),
        confused=list_confused(labels, confusion),
    )


def list_confused(labels: tuple[str, ...], confusion: Ints) -> tuple[ConfusedPair, ...]:
    wrong = confusion - np.diag(np.diag(confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:20]
    found = [(*divmod(int(place), len(labels)), int(wrong.ravel()[place])) for place in order]
    return tuple(
        ConfusedPair(labels[row], labels[column], examples, examples / confusion[row].sum())
        for row, column, examples in found
        if examples
    )


def make_slices(
    labels: tuple[str, ...], accuracy: float, *, compared: bool
) -> tuple[SliceMetrics, ...]:
    sizes = ("below 32 px", "32 to 63 px", "64 to 127 px", "128 px and more")
    formats = ("gif", "jpeg", "png")
    random = np.random.default_rng(2)
    found = []
    for slicing, values in (("class", labels), ("format", formats), ("size", sizes)):
        for value in values:
            mean, wide = accuracy - 0.1 * random.random(), 0.01 + 0.05 * random.random()
            baseline = mean - 0.02 if compared else None
            change = Interval(0.02 - wide, 0.02 + wide) if compared else None
            interval = Interval(mean - wide, min(1, mean + wide))
            found.append(SliceMetrics(slicing, value, 40, mean, interval, baseline, change))
    return tuple(found)
