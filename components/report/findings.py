"""What a person should look at: each finding with its number, why it matters, and what to do.

The limits are rules of thumb where no source is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.example import EVAL, TRAIN
from components.report.facts import ReportFacts

# Accuracy on train less that on eval.
_WIDE_GAP = 0.1
# Confidence less accuracy, on average; fewer images make noise of that size.
_LARGE_ECE, _ENOUGH_FOR_ECE = 0.05, 200
# Images of the most frequent class for each of the rarest.
_UNBALANCED = 10
_FEW_OF_A_CLASS = 20
_MANY_DUPLICATES = 0.05
_MANY_SMALL = 0.2
# As in `pipeline_def.config`: fewer photographs, and larger ones, want pretrained weights.
_FEW_TO_START_AT_RANDOM, _SMALL_SIDE = 8_000, 64
_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """Something that stands out."""

    section: str
    """Of the page, where more is to be seen."""
    text: str
    """With its number."""
    why: str
    """Why it matters."""
    advice: str
    """What to do about it."""


@dataclass(frozen=True)
class Examination:
    """All findings, and what was looked at."""

    findings: tuple[Finding, ...]
    """The most important first."""
    looked_at: tuple[str, ...]
    """In words, whether something was found or not."""
    unknown: tuple[str, ...]
    """What could not be looked at, as the run does not tell it."""


class _UnknownError(Exception):
    """The facts do not tell what a check needs."""


def examine(facts: ReportFacts) -> Examination:
    """Look at everything that the facts tell."""
    findings: list[Finding] = []
    looked_at, unknown = [], []
    for name, check in _CHECKS.items():
        try:
            findings += check(facts)
            looked_at.append(name)
        except _UnknownError:
            unknown.append(name)
    return Examination(tuple(findings), tuple(looked_at), tuple(unknown))


def _certainty(facts: ReportFacts) -> Iterator[Finding]:
    """What too few images leave open."""
    if facts.verdict.outcome == "undecided":
        yield Finding(
            "metrics",
            facts.verdict.headline.removeprefix("Not blessed: ").rstrip("."),
            "another set of as many images may say the opposite",
            f"evaluate on more images: {facts.verdict.reasons[-1]}"
            if facts.verdict.reasons
            else "evaluate on more images",
        )
    if facts.is_optimistic:
        yield Finding(
            "metrics",
            f"the {facts.split} split has both chosen the weights and judged them",
            "the numbers are optimistic",
            "keep images apart in a folder test, or have 1,000 images, of which a tenth is kept",
        )


def _against_baseline(facts: ReportFacts) -> Iterator[Finding]:
    change = facts.comparison.changes.get("accuracy")
    if change and change.high < 0:
        yield Finding(
            "metrics",
            f"accuracy is {-change.high:.3f} to {-change.low:.3f} below that of the model in use",
            "that is more than chance",
            "compare both runs with `local_runner.py runs`: what changed in data, options or code?",
        )


def _fit(facts: ReportFacts) -> Iterator[Finding]:
    """Whether the network has learned the images by heart."""
    kept = facts.kept_epoch
    curves = [facts.history.get(name, ()) for name in ("accuracy", "val_accuracy")]
    if kept is None or min(map(len, curves)) < kept.epoch:
        raise _UnknownError
    train, evaluated = (float(curve[kept.epoch - 1]) for curve in curves)
    if train - evaluated > _WIDE_GAP:
        yield Finding(
            "training",
            f"accuracy is {train:.3f} on train and {evaluated:.3f} on eval",
            "the network knows the training images by heart rather than the classes",
            "take more images, more augmentation (--augmentation.policy trivial)"
            + (", or pretrained weights (--model.weights imagenet)" if _at_random(facts) else ""),
        )


def _length(facts: ReportFacts) -> Iterator[Finding]:
    """Whether training was long enough."""
    kept, training = facts.kept_epoch, facts.header.config.get("training", {})
    epochs = len(facts.history.get("val_loss", ()))
    if kept is None or "epochs" not in training or not epochs:
        raise _UnknownError
    if kept.epoch == 1 and epochs >= 3:
        yield Finding(
            "training",
            f"the first of {epochs} epochs was the best",
            "everything after it made the model worse",
            f"lower the learning rate: --training.learning_rate {training['learning_rate'] / 10:g}",
        )
    accuracy = [float(value) for value in facts.history.get("accuracy", ())[-1:]]
    is_last = kept.epoch == epochs == training["epochs"]
    # A falling learning rate makes the last epoch the best one, as long as there is more to learn.
    if is_last and accuracy and accuracy[0] < 0.9:
        yield Finding(
            "training",
            f"the last of {epochs} epochs was the best, with an accuracy of {accuracy[0]:.3f} on "
            f"train",
            "the network was still learning",
            f"train longer: --training.epochs {2 * epochs}",
        )


def _start(facts: ReportFacts) -> Iterator[Finding]:
    images, size = sum(facts.balance.get(TRAIN, {}).values()), _side(facts)
    if size is None:
        raise _UnknownError
    few = images < _FEW_TO_START_AT_RANDOM and size > _SMALL_SIDE
    if few and _at_random(facts) and facts.metrics.scalars["accuracy"] < 0.9:
        yield Finding(
            "run",
            f"{images:,} images of {size} pixels, from random weights",
            "networks for photographs have millions of weights",
            "start from pretrained ones: --model.weights imagenet, or those of an earlier training",
        )


def _sizes(facts: ReportFacts) -> Iterator[Finding]:
    """Images that are enlarged before the model sees them."""
    side = _side(facts)
    counts = {s.value: s.examples for s in facts.comparison.slices if s.slicing == "size"}
    if side is None or not counts:
        raise _UnknownError
    small = sum(count for name, count in counts.items() if _largest(name) < side)
    if small > _MANY_SMALL * sum(counts.values()):
        yield Finding(
            "slices",
            f"{small / sum(counts.values()):.0%} of the {facts.split} images are smaller than the "
            f"{side} pixels that the model sees",
            "enlarged images have no more detail, and cost the time of large ones",
            "choose the size that most images have: --transform.size",
        )


def _largest(size: str) -> float:
    """Return the longest shorter side, pixels, of a slice such as `32 to 63 px`."""
    numbers = [int(word) for word in size.split() if word.isdigit()]
    return numbers[-1] if numbers and "more" not in size else math.inf


def _side(facts: ReportFacts) -> int | None:
    size: int | None = facts.header.config.get("transform", {}).get("size")
    return size


def _at_random(facts: ReportFacts) -> bool:
    return bool(facts.header.config.get("model", {}).get("weights") == "none")


def _answers(facts: ReportFacts) -> Iterator[Finding]:
    """Classes that the model does not know."""
    metrics = facts.metrics
    if not metrics.support.sum():
        raise _UnknownError
    never = metrics.confusion.sum(axis=0) == 0
    if never.any():
        yield Finding(
            "classes",
            f"the model never answers with {_name(metrics.labels, never)}",
            "every image of such a class is a mistake",
            "look at the images of these classes; --training.balance weights if they are rare",
        )
    missed = (metrics.support > 0) & (np.diag(metrics.confusion) == 0) & ~never
    if missed.any():
        yield Finding(
            "classes",
            f"no image of {_name(metrics.labels, missed)} is recognised",
            "the model is of no use for them",
            "see below what they are taken for: labels may be mixed up",
        )
    absent = metrics.support == 0
    if absent.any():
        yield Finding(
            "classes",
            f"the {facts.split} split has no image of {_name(metrics.labels, absent)}",
            "nobody knows how good the model is for them",
            "add images of these classes",
        )


def _name(labels: Sequence[str], those: Any) -> str:
    chosen = [label for label, is_one in zip(labels, those, strict=True) if is_one]
    more = f" and {len(chosen) - _NAMED} more classes" if chosen[_NAMED:] else ""
    return f"{', '.join(chosen[:_NAMED])}{more}"


def _calibration(facts: ReportFacts) -> Iterator[Finding]:
    images, error = int(facts.metrics.support.sum()), facts.metrics.scalars.get("ece", math.nan)
    if not images or not math.isfinite(error):
        raise _UnknownError
    if error <= _LARGE_ECE or images < _ENOUGH_FOR_ECE:
        return
    bins = [bin_ for bin_ in facts.confidence_bins if bin_.examples]
    over = sum(bin_.examples * (bin_.confidence - bin_.accuracy) for bin_ in bins) > 0
    yield Finding(
        "calibration",
        f"confidence is {error:.3f} from accuracy on average: the model is "
        f"{'too sure' if over else 'surer than it says'}",
        "probabilities cannot be taken at their word, as in a threshold",
        _calibration_advice(facts.header.config.get("training", {}), over=over),
    )


def _calibration_advice(training: Mapping[str, Any], *, over: bool) -> str:
    if not training.get("calibrate"):
        return "fit a temperature on the eval split: --training.calibrate true"
    smoothing = training.get("label_smoothing", 0)
    if over or not smoothing:
        return "it is calibrated already, on the eval split: that should have more images"
    return f"it is calibrated already: lower --training.label_smoothing, which is {smoothing:g}"


def _balance(facts: ReportFacts) -> Iterator[Finding]:
    counts = facts.balance.get(TRAIN)
    if not counts:
        raise _UnknownError
    (most, many), (least, few) = (
        choose(counts.items(), key=lambda item: item[1]) for choose in (max, min)
    )
    if many >= _UNBALANCED * few:
        yield Finding(
            "balance",
            f"{many:,} training images of {most}, {few:,} of {least}",
            "a model looks good by leaving rare classes out",
            "--training.balance weights, and --training.metric balanced_accuracy to choose by",
        )
    tiny = [label for label, count in counts.items() if count < _FEW_OF_A_CLASS]
    if tiny:
        yield Finding(
            "balance",
            f"fewer than {_FEW_OF_A_CLASS} training images of {_name(tiny, [True] * len(tiny))}",
            "what such a class looks like cannot be learned from so few",
            "add images, or merge classes",
        )
    missing = sorted(counts.keys() - facts.balance.get(EVAL, counts).keys())
    if missing:
        yield Finding(
            "balance",
            f"the eval split has no image of {_name(missing, [True] * len(missing))}",
            "the epoch is chosen without them",
            "add images, or sort them into train and eval folders",
        )


def _files(facts: ReportFacts) -> Iterator[Finding]:
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


_FILES = {
    "rejected": (
        "file was rejected",
        "files were rejected",
        "what cannot be read is not learned from",
        "see the reasons below, and repair or remove the files",
    ),
    "label_conflicts": (
        "image has several labels",
        "images have several labels",
        "one of the labels is wrong, and cannot be learned",
        "remove the wrong copies, or set --ingest.conflicts drop",
    ),
    "in_several_splits": (
        "image is in several splits",
        "images are in several splits",
        "the model is judged on what it was trained on",
        "remove the copies",
    ),
    "duplicates": (
        "file is a copy of another one",
        "files are copies of other ones",
        "copies count more than other images",
        "remove them",
    ),
}


def _anomalies(facts: ReportFacts) -> Iterator[Finding]:
    if not facts.anomalies:
        raise _UnknownError
    texts = [text for of_split in facts.anomalies.values() for text in of_split]
    if texts:
        yield Finding(
            "files",
            f"{len(texts)} {'anomaly' if len(texts) == 1 else 'anomalies'} in the data, such as "
            f"{texts[0]}",
            "images that differ from those of before are answered worse",
            "see what validation says below",
        )


def _waiting(facts: ReportFacts) -> Iterator[Finding]:
    waits, limit = facts.waits, facts.header.config.get("input", {}).get("max_wait")
    if not waits or limit is None:
        raise _UnknownError
    wait = float(np.median(waits))
    if wait > limit:
        yield Finding(
            "training",
            f"training waited for input {wait:.0%} of its time",
            "an accelerator that waits is paid for nothing",
            "see what the run advises, such as --input.cache decoded",
        )


_CHECKS: dict[str, Callable[[ReportFacts], Iterator[Finding]]] = {
    "the model in use": _against_baseline,
    "pretrained weights": _start,
    "how sure the numbers are": _certainty,
    "classes that are never right": _answers,
    "train against eval": _fit,
    "length of the training": _length,
    "sizes of the images": _sizes,
    "calibration": _calibration,
    "balance of the classes": _balance,
    "rejects, copies and conflicting labels": _files,
    "anomalies and drift": _anomalies,
    "waiting for input": _waiting,
}
