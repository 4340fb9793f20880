"""Compares two runs: what differs between them, and which model is better."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from components.contract.example import EVAL, count_folds
from components.evaluation.config import EvaluationConfig
from components.metrics.classification_metrics import measure
from components.metrics.proof import Relation
from components.report.comparison.paired import (
    Evaluation,
    MetricPair,
    Overlap,
    Paired,
    ReadPictures,
    measure_pairs,
    pair,
    pair_metrics,
)
from components.report.page.formatting import count

Outcome = Relation | Literal["apart"]

_MOST_NAMES = 6
_CORRECTIONS = "corrections"
# What corrections change, besides numbers of images, such as "train: images".
_OF_CORRECTIONS = (_CORRECTIONS, "ingest.corrections", "images per label")


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs."""

    name: str
    """Such as run 3; A or B if the runs have the same number in different outputs."""
    id: str
    title: str
    """Names the run as the list of runs does: its number and start."""
    output: str
    """Output folder of the run."""
    split: str
    """The evaluated split."""
    data: Mapping[str, Any]
    """Identifies the images, such as by folder and fingerprint of its listing."""
    examples: Mapping[str, Mapping[str, int]]
    """Split → label → examples."""
    configuration: Mapping[str, Any]
    """`section.field` → value."""
    code: Mapping[str, str]
    """Step → digest of its code."""
    versions: Mapping[str, str]
    """Package → version."""
    model: str = ""
    """URI of the model; the same for both runs if nothing was trained in between."""

    @property
    def max_drop(self) -> float:
        """Largest drop in accuracy that still lets a model replace another."""
        name, default = "evaluation.max_accuracy_drop", EvaluationConfig.max_accuracy_drop
        return float(self.configuration.get(name, default))


class Difference(NamedTuple):
    """A fact about both runs; None where it is missing."""

    name: str
    first: Any
    second: Any


class Part(NamedTuple):
    """A part of the runs, such as their settings, and what differs in it."""

    section: str
    """Section of the page."""
    title: str
    differing: tuple[str, ...]
    """Names of what differs; empty if all is the same."""

    def __str__(self) -> str:
        """Name what differs, up to a limit."""
        names = ", ".join(self.differing[:_MOST_NAMES])
        more = f" and {len(self.differing) - _MOST_NAMES} more"
        return f"{self.title}: {names}{more if self.differing[_MOST_NAMES:] else ''}"


@dataclass(frozen=True)
class ComparisonFacts:
    """Everything on the page of two runs."""

    first: ComparedRun
    second: ComparedRun
    overlap: Overlap
    paired: Paired | None
    """None if the runs share no images."""
    whole: tuple[MetricPair, ...]
    """Metrics of each run on all of its images, without differences."""
    outcome: Outcome
    """Of the second run against the first; apart: they share no images."""
    headline: str
    """The outcome in a sentence."""
    reasons: tuple[str, ...]
    """Sentences."""


def compare_runs(
    runs: tuple[ComparedRun, ComparedRun],
    evaluations: tuple[Evaluation, Evaluation],
    *,
    most: int,
    read_pictures: ReadPictures,
    newest: Literal[0, 1] = 1,
    share: int = 1,
) -> ComparisonFacts:
    """Compare the second run with the first, on the images that both evaluated.

    Where their labels differ, those of the run `newest` count. The evaluations have one image in
    `share`.
    """
    *both, overlap = pair(*evaluations, newest=newest)
    paired = None
    if overlap.both:
        paired = measure_pairs(*both, same=overlap.shared, most=most, read_pictures=read_pictures)
    outcome, headline, reasons = _judge(runs, overlap, paired, newest)
    if share > 1:
        reasons += (
            f"The runs have too many predictions for the memory: all numbers here are from one "
            f"image in {share:,}, chosen by its content.",
        )
    first, second = (measure(evaluation.predictions) for evaluation in evaluations)
    return ComparisonFacts(
        first=runs[0],
        second=runs[1],
        overlap=overlap,
        paired=paired,
        whole=pair_metrics(first, second, {}),
        outcome=outcome,
        headline=headline,
        reasons=reasons,
    )


def _judge(
    runs: tuple[ComparedRun, ComparedRun],
    overlap: Overlap,
    paired: Paired | None,
    newest: Literal[0, 1],
) -> tuple[Outcome, str, tuple[str, ...]]:
    """Return outcome, headline and reasons, by the rule of the Evaluator's verdict."""
    first, second = (run.name for run in runs)
    reasons = [*_describe_overlap(overlap, first, second), *_describe_corrections(*runs)]
    reasons += [
        f"{run.name} was evaluated on its {EVAL} split, which also selected its weights, so its "
        "scores are slightly optimistic."
        for run in runs
        if run.split == EVAL
    ]
    reasons += [
        f"{run.name} was cross-validated over {run.split}: each image was judged by a model that "
        "had not seen it."
        for run in runs
        if count_folds(run.split)
    ]
    if runs[0].model and runs[0].model == runs[1].model:
        reasons.append("Both runs evaluated the same model: nothing was trained in between.")
    sentences = tuple(_capitalize(reason) for reason in reasons)
    if paired is None:
        headline = f"{first} and {second} cannot be compared: they were evaluated on different "
        found = ("No image was evaluated by both runs.", *sentences)
        return "apart", _capitalize(f"{headline}images."), found
    max_drop = runs[1].max_drop
    if overlap.relabelled:
        sentences = (*_describe_yardstick(runs, overlap, paired, newest), *sentences)
    outcome, told = paired.change.relate(max_drop), paired.change.tell(first, second, max_drop)
    numbers = (
        f"{_capitalize(paired.change.explain(first, second, max_drop))}.",
        f"From {first} to {second}, {count(paired.lost.total, 'image')} went from right to wrong "
        f"and {paired.won.total:,} from wrong to right.",
    )
    headline = f"Undecided: {told}." if outcome == "undecided" else _capitalize(f"{told}.")
    return outcome, headline, (*numbers, *sentences)


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _describe_overlap(overlap: Overlap, first: str, second: str) -> Iterator[str]:
    if overlap.is_whole:
        yield f"Both runs evaluated the same {count(overlap.shared, 'image')}."
        return
    yield (
        f"Images evaluated by both runs: {overlap.both:,}; only by {first}: "
        f"{overlap.only_first:,}; only by {second}: {overlap.only_second:,}. Images are matched by "
        "content."
    )


def _describe_yardstick(
    runs: tuple[ComparedRun, ComparedRun], overlap: Overlap, paired: Paired, newest: int
) -> Iterator[str]:
    """Say by which labels both models are judged, and how they relate without the changed ones."""
    first, second = (run.name for run in runs)
    yield (
        f"The yardstick has changed: {count(overlap.relabelled, 'image')} of {overlap.both:,} got "
        f"another label between {first} and {second}. Both models are judged by the labels of "
        f"{runs[newest].name}, the newer run."
    )
    if paired.unchanged:
        told = paired.unchanged.explain(first, second, runs[1].max_drop)
        number = count(overlap.shared, "image")
        yield f"On the {number} whose label nobody changed, {told}."


def _describe_corrections(first: ComparedRun, second: ComparedRun) -> Iterator[str]:
    """Say which corrections the runs used, and whether they are all that differs."""
    used, others = (run.data.get(_CORRECTIONS) or "none" for run in (first, second))
    if used == others:
        return
    yield f"Corrections of {first.name}: {used}; of {second.name}: {others}."
    more = [
        part.title
        for part in list_parts(first, second)
        if any(name not in _OF_CORRECTIONS and ": " not in name for name in part.differing)
    ]
    if more:
        yield (
            f"The runs differ in {' and '.join(more)}, too, so the corrections alone may not "
            "explain the difference."
        )


def list_parts(first: ComparedRun, second: ComparedRun) -> tuple[Part, ...]:
    """List what differs in images, settings, code and versions."""
    data = [row.name for row in pair_data(first, second) if row.first != row.second]
    if not data and list_labels(first, second):
        data = ["images per label"]
    settings = list_differences(first.configuration, second.configuration)
    code = list_differences(first.code, second.code)
    versions = list_differences(first.versions, second.versions)
    return (
        Part("data", "images", tuple(data)),
        Part("settings", "settings", tuple(row.name for row in settings)),
        Part("code", "code of steps", tuple(row.name for row in code)),
        Part("code", "versions", tuple(row.name for row in versions)),
    )


def list_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the values that differ, by name; None stands for a missing value."""
    names = sorted(first.keys() | second.keys())
    pairs = (Difference(name, first.get(name), second.get(name)) for name in names)
    return tuple(pair for pair in pairs if pair.first != pair.second)


def pair_data(first: ComparedRun, second: ComparedRun) -> tuple[Difference, ...]:
    """Return the facts about the images and splits of both runs, even if they are equal."""
    before, after = _describe_data(first), _describe_data(second)
    names = {**before, **after}
    pairs = (Difference(name, before.get(name), after.get(name)) for name in names)
    return tuple(pair for pair in pairs if (pair.first, pair.second) != (None, None))


def _describe_data(run: ComparedRun) -> dict[str, Any]:
    counts = {f"{split}: images": sum(labels.values()) for split, labels in run.examples.items()}
    classes = {f"{split}: classes": len(labels) for split, labels in run.examples.items()}
    return {**run.data, **counts, **classes}


def list_labels(first: ComparedRun, second: ComparedRun) -> list[Difference]:
    """Return the labels whose image counts differ in a split, the largest difference first."""
    found = list_differences(dict(_count_labels(first)), dict(_count_labels(second)))
    return sorted(found, key=lambda one: -abs((one.second or 0) - (one.first or 0)))


def _count_labels(run: ComparedRun) -> Iterator[tuple[str, int]]:
    for split, labels in run.examples.items():
        for label, images in labels.items():
            yield f"{split}: {label}", images
