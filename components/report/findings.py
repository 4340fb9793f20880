"""Findings: what stands out in a run, why it matters, and what to do about it.

Limits without a source are rules of thumb.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.example import EVAL, TRAIN
from components.contract.rules_of_thumb import ENOUGH_TO_START_AT_RANDOM, SMALL_SIDE
from components.report.facts import ReportFacts

# Accuracy on train minus that on eval.
_WIDE_GAP = 0.1
# With fewer images, noise alone causes such a calibration error.
_LARGE_ECE, _ENOUGH_FOR_ECE = 0.05, 200
# Images of the most frequent class per image of the rarest.
_UNBALANCED = 10
_FEW_OF_A_CLASS = 20
_MANY_DUPLICATES = 0.05
_MANY_SMALL = 0.2
# Training accuracy, and accuracy, above which a model has little left to learn.
_LEARNED = 0.9
_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """Something that stands out."""

    section: str
    """Section of the page with more on it."""
    text: str
    """The fact, with its number."""
    why: str
    """Why it matters."""
    advice: str
    """What to do about it."""


@dataclass(frozen=True)
class Examination:
    """All findings, and what was checked."""

    findings: tuple[Finding, ...]
    """The most important first."""
    looked_at: tuple[str, ...]
    """Names of the checks, whether they found something or not."""
    unknown: tuple[str, ...]
    """Names of the checks for which the run has no data."""


class _UnknownError(Exception):
    """The facts lack what a check needs."""


def examine(facts: ReportFacts) -> Examination:
    """Run all checks."""
    findings: list[Finding] = []
    looked_at, unknown = [], []
    for name, check in _CHECKS.items():
        try:
            findings += check(facts)
            looked_at.append(name)
        except _UnknownError:
            unknown.append(name)
    return Examination(tuple(findings), tuple(looked_at), tuple(unknown))


def _check_certainty(facts: ReportFacts) -> Iterator[Finding]:
    if facts.verdict.outcome == "undecided":
        yield Finding(
            "metrics",
            facts.verdict.headline.removeprefix("Not blessed: ").rstrip("."),
            "another set of as many images may show the opposite",
            f"evaluate on more images: {facts.verdict.reasons[-1]}"
            if facts.verdict.reasons
            else "evaluate on more images",
        )
    if facts.is_optimistic:
        yield Finding(
            "metrics",
            f"the {facts.split} split is used both to pick and to score the model",
            "the scores are slightly optimistic",
            "add a test/ folder, or collect 1,000 images so that 10 % can be held out",
        )


def _check_baseline(facts: ReportFacts) -> Iterator[Finding]:
    change = facts.comparison.changes.get("accuracy")
    if change and change.high < 0:
        yield Finding(
            "metrics",
            f"accuracy is {-change.high:.3f} to {-change.low:.3f} below that of the model in use",
            "this is more than chance",
            "compare both runs with `local_runner.py runs`: what changed in data, options or code?",
        )


def _check_fit(facts: ReportFacts) -> Iterator[Finding]:
    kept = facts.kept_epoch
    curves = [facts.history.get(name, ()) for name in ("accuracy", "val_accuracy")]
    if kept is None or min(map(len, curves)) < kept.epoch:
        raise _UnknownError
    train, evaluated = (float(curve[kept.epoch - 1]) for curve in curves)
    if train - evaluated > _WIDE_GAP:
        yield Finding(
            "training",
            f"accuracy is {train:.3f} on train but {evaluated:.3f} on eval",
            "the network overfits: it memorizes the training images",
            "add images, or use stronger augmentation (--augmentation.policy trivial)"
            + (" or pretrained weights (--model.weights imagenet)" if _at_random(facts) else ""),
        )


def _check_length(facts: ReportFacts) -> Iterator[Finding]:
    kept, training = facts.kept_epoch, facts.header.config.get("training", {})
    epochs = len(facts.history.get("val_loss", ()))
    if kept is None or "epochs" not in training or not epochs:
        raise _UnknownError
    if kept.epoch == 1 and epochs >= 3:
        yield Finding(
            "training",
            f"the first of {epochs} epochs was the best",
            "further training only made the model worse",
            f"lower the learning rate: --training.learning_rate {training['learning_rate'] / 10:g}",
        )
    accuracy = [float(value) for value in facts.history.get("accuracy", ())[-1:]]
    is_last = kept.epoch == epochs == training["epochs"]
    # With a decaying learning rate the last epoch is often the best one.
    if is_last and accuracy and accuracy[0] < _LEARNED:
        yield Finding(
            "training",
            f"the last of {epochs} epochs was the best, with a training accuracy of "
            f"{accuracy[0]:.3f}",
            "the network was still learning",
            f"train longer: --training.epochs {2 * epochs}",
        )


def _check_start(facts: ReportFacts) -> Iterator[Finding]:
    images, size = sum(facts.balance.get(TRAIN, {}).values()), _input_size(facts)
    if size is None:
        raise _UnknownError
    few = images < ENOUGH_TO_START_AT_RANDOM and size > SMALL_SIDE
    if few and _at_random(facts) and facts.metrics.scalars["accuracy"] < _LEARNED:
        yield Finding(
            "run",
            f"{images:,} training images of {size} pixels, and random initial weights",
            "networks for photographs have millions of weights, too many for so few images",
            "start from pretrained weights: --model.weights imagenet, or those of an earlier run",
        )


def _check_sizes(facts: ReportFacts) -> Iterator[Finding]:
    side = _input_size(facts)
    counts = {s.value: s.examples for s in facts.comparison.slices if s.slicing == "size"}
    if side is None or not counts:
        raise _UnknownError
    small = sum(count for name, count in counts.items() if _largest(name) < side)
    if small > _MANY_SMALL * sum(counts.values()):
        yield Finding(
            "slices",
            f"{small / sum(counts.values()):.0%} of the {facts.split} images are smaller than the "
            f"model's input of {side} pixels",
            "enlarging adds no detail, but large images take longer",
            "choose the size of most images: --transform.size",
        )


def _largest(size: str) -> float:
    """Return the longest shorter side, pixels, of a slice such as `32 to 63 px`."""
    numbers = [int(word) for word in size.split() if word.isdigit()]
    return numbers[-1] if numbers and "more" not in size else math.inf


def _input_size(facts: ReportFacts) -> int | None:
    size: int | None = facts.header.config.get("transform", {}).get("size")
    return size


def _at_random(facts: ReportFacts) -> bool:
    return bool(facts.header.config.get("model", {}).get("weights") == "none")


def _check_classes(facts: ReportFacts) -> Iterator[Finding]:
    metrics = facts.metrics
    if not metrics.support.sum():
        raise _UnknownError
    never = metrics.confusion.sum(axis=0) == 0
    if never.any():
        yield Finding(
            "classes",
            f"the model never predicts {_name(metrics.labels, never)}",
            "every image of such a class is misclassified",
            "look at the images of these classes; use --training.balance weights if they are rare",
        )
    missed = (metrics.support > 0) & (np.diag(metrics.confusion) == 0) & ~never
    if missed.any():
        yield Finding(
            "classes",
            f"no image of {_name(metrics.labels, missed)} is classified correctly",
            "the model is useless for these classes",
            "see the confusion matrix below: labels may be mixed up",
        )
    absent = metrics.support == 0
    if absent.any():
        yield Finding(
            "classes",
            f"the {facts.split} split has no images of {_name(metrics.labels, absent)}",
            "the accuracy on these classes is unknown",
            "add images of these classes",
        )


def _name(labels: Sequence[str], chosen: Any) -> str:
    """Name the chosen labels, up to a limit; `chosen` is [labels], flags."""
    names = [label for label, is_chosen in zip(labels, chosen, strict=True) if is_chosen]
    more = f" and {len(names) - _NAMED} more classes" if names[_NAMED:] else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _check_calibration(facts: ReportFacts) -> Iterator[Finding]:
    images, error = int(facts.metrics.support.sum()), facts.metrics.scalars.get("ece", math.nan)
    if not images or not math.isfinite(error):
        raise _UnknownError
    if error <= _LARGE_ECE or images < _ENOUGH_FOR_ECE:
        return
    bins = [bin_ for bin_ in facts.confidence_bins if bin_.examples]
    over = sum(bin_.examples * (bin_.confidence - bin_.accuracy) for bin_ in bins) > 0
    yield Finding(
        "calibration",
        f"the calibration error is {error:.3f}: the model is "
        f"{'overconfident' if over else 'underconfident'}",
        "its probabilities are unreliable, for example when compared with a threshold",
        _advise_calibration(facts.header.config.get("training", {}), over=over),
    )


def _advise_calibration(training: Mapping[str, Any], *, over: bool) -> str:
    if not training.get("calibrate"):
        return "fit a temperature on the eval split: --training.calibrate true"
    smoothing = training.get("label_smoothing", 0)
    if over or not smoothing:
        return "it is already calibrated on the eval split, which should have more images"
    return f"it is already calibrated: lower --training.label_smoothing, now {smoothing:g}"


def _check_balance(facts: ReportFacts) -> Iterator[Finding]:
    counts = facts.balance.get(TRAIN)
    if not counts:
        raise _UnknownError
    (most, many), (least, few) = (
        choose(counts.items(), key=lambda item: item[1]) for choose in (max, min)
    )
    if many >= _UNBALANCED * few:
        yield Finding(
            "balance",
            f"{many:,} training images of {most}, but {few:,} of {least}",
            "a model can score well and still ignore rare classes",
            "use --training.balance weights, and --training.metric balanced_accuracy to pick the "
            "epoch",
        )
    tiny = [label for label, count in counts.items() if count < _FEW_OF_A_CLASS]
    if tiny:
        yield Finding(
            "balance",
            f"fewer than {_FEW_OF_A_CLASS} training images of {_name(tiny, [True] * len(tiny))}",
            "so few images do not show what a class looks like",
            "add images, or merge classes",
        )
    missing = sorted(counts.keys() - facts.balance.get(EVAL, counts).keys())
    if missing:
        yield Finding(
            "balance",
            f"the eval split has no images of {_name(missing, [True] * len(missing))}",
            "the best epoch is picked without them",
            "add images, or sort them into train/ and eval/ folders",
        )


def _check_files(facts: ReportFacts) -> Iterator[Finding]:
    if not facts.files:
        raise _UnknownError
    counted = {name: int(facts.files.get(name, 0)) for name in (*_FILES, "examples")}
    for name, (one, several, why, advice) in _FILES.items():
        count = counted[name]
        if name == "duplicates" and count <= _MANY_DUPLICATES * counted["examples"]:
            continue
        if count:
            text = f"{count:,} {one if count == 1 else several}"
            yield Finding("files", text, why, advice)
    for text in facts.files.get("look_alikes", ()):
        yield Finding("files", text, "each counts as one of its own", "give them one name")


_FILES = {
    "rejected": (
        "file was rejected",
        "files were rejected",
        "rejected files are not used for training",
        "see the reasons below, and repair or remove the files",
    ),
    "label_conflicts": (
        "image has several labels",
        "images have several labels",
        "at least one of the labels is wrong",
        "remove the wrong copies, or set --ingest.conflicts drop",
    ),
    "in_several_splits": (
        "image is in several splits",
        "images are in several splits",
        "the model is evaluated on training images",
        "remove the copies",
    ),
    "duplicates": (
        "file is a copy of another",
        "files are copies of others",
        "copied images count more than others",
        "remove the copies",
    ),
}


def _check_anomalies(facts: ReportFacts) -> Iterator[Finding]:
    if not facts.anomalies:
        raise _UnknownError
    texts = [text for of_split in facts.anomalies.values() for text in of_split]
    if texts:
        yield Finding(
            "files",
            f"{len(texts)} {'anomaly' if len(texts) == 1 else 'anomalies'} in the data, such as "
            f"{texts[0]}",
            "the model may be worse on images that differ from earlier ones",
            "see the results of data validation below",
        )


def _check_waiting(facts: ReportFacts) -> Iterator[Finding]:
    waits, limit = facts.waits, facts.header.config.get("input", {}).get("max_wait")
    if not waits or limit is None:
        raise _UnknownError
    wait = float(np.median(waits))
    if wait > limit:
        yield Finding(
            "training",
            f"training spent {wait:.0%} of its time waiting for input",
            "an idle accelerator wastes time and money",
            "follow the advice in the log of the run, such as --input.cache decoded",
        )


_CHECKS: dict[str, Callable[[ReportFacts], Iterator[Finding]]] = {
    "model in use": _check_baseline,
    "pretrained weights": _check_start,
    "statistical certainty": _check_certainty,
    "classes without correct predictions": _check_classes,
    "overfitting": _check_fit,
    "training length": _check_length,
    "image sizes": _check_sizes,
    "calibration": _check_calibration,
    "class balance": _check_balance,
    "rejected and duplicate files": _check_files,
    "anomalies and drift": _check_anomalies,
    "input wait": _check_waiting,
}
