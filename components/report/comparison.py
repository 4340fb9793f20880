"""Compares two runs, on a page made of sections of the report: what differs, and who is better.

Images are paired by content: files may have been renamed or moved.
"""

import functools
import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from components.contract.example import EVAL, count_folds
from components.contract.printable import name_some
from components.images.picture import Thumbnail
from components.metrics.classification_metrics import (
    Comparison,
    ModelMetrics,
    measure,
    measure_slices,
)
from components.metrics.intervals import estimate_intervals
from components.metrics.metric_table import METRICS
from components.metrics.predictions import Evaluated, Flags, Ints, Predictions
from components.metrics.proof import AccuracyChange, Relation
from components.report.page.document import render_template
from components.report.page.drawing import ModelNames
from components.report.page.formatting import count, sentence
from components.report.page.metrics import describe_comparison, describe_slices
from components.report.shown import PredictedImage

Outcome = Relation | Literal["apart"]

_MOST_NAMES = 6
# Differences that are listed of each part of the runs.
_MOST = 100
_CORRECTIONS = "corrections"
# What corrections change, besides numbers of images, such as "train: images".
_OF_CORRECTIONS = (_CORRECTIONS, "ingest.corrections")


@dataclass(frozen=True)
class EvaluatedRun:
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
    max_drop: float
    """Largest drop in accuracy that still lets a model replace another."""
    model: str = ""
    """URI of the model; the same for both runs if nothing was trained in between."""


@dataclass(frozen=True, eq=False)
class RunPredictions:
    """The predictions of a run for its images."""

    filenames: tuple[str, ...]
    labels: tuple[str, ...]
    """The true label of each image."""
    predictions: Predictions
    keys: tuple[str, ...]
    """Digest of the content of each image."""
    examples: str
    """URI of ImageExampleGen's examples."""
    split: str

    def take(self, rows: Sequence[int], labels: Sequence[str]) -> Evaluated:
        """Return the predictions for some of the images, judged by other labels."""
        model = self.predictions
        columns = {label: column for column, label in enumerate(model.labels)}
        ids: Ints = np.array([columns.get(label, -1) for label in labels], np.int64)
        names = tuple(self.filenames[row] for row in rows)
        judged = Predictions(model.labels, ids, model.probabilities[list(rows)])
        return Evaluated(names, {"class": tuple(labels)}, judged)


ReadPictures = Callable[[RunPredictions, Collection[str]], Mapping[str, Thumbnail | None]]
"""Maps file names of a run to thumbnails of its images."""


@dataclass(frozen=True)
class Overlap:
    """Numbers of the images that the runs share or not."""

    shared: int
    """In both runs with the same label."""
    relabelled: int
    """In both runs with different labels."""
    only_first: int
    """In the first run only."""
    only_second: int

    @property
    def both(self) -> int:
        """Number of images in both runs, with any label."""
        return self.shared + self.relabelled

    @property
    def is_whole(self) -> bool:
        """Whether both runs evaluated the same images with the same labels."""
        return not (self.relabelled or self.only_first or self.only_second)


class Difference(NamedTuple):
    """A fact that differs between the runs; None where it is missing."""

    name: str
    first: Any
    second: Any


class DifferingPart(NamedTuple):
    """A part of the runs, such as their settings, and what differs in it."""

    title: str
    rows: tuple[Difference, ...]

    def __str__(self) -> str:
        """Name what differs, up to a limit."""
        return f"{self.title}: {name_some([row.name for row in self.rows], _MOST_NAMES)}"


@dataclass(frozen=True)
class SharedImages:
    """Both models on the images that they share."""

    change: AccuracyChange
    """The accuracy of the second model against that of the first."""
    unchanged: AccuracyChange | None
    """The same on the images whose label is the same in both runs; None if there are none."""
    comparison: Comparison
    """Metrics of the second model, and recall of each class, with the first as the baseline."""
    lost: int
    """Number of images that went from right to wrong; `won` is the reverse."""
    won: int
    shown_lost: tuple[PredictedImage, ...]
    """With the wrong prediction; those that both models are most confident about come first."""
    shown_won: tuple[PredictedImage, ...]


@dataclass(frozen=True)
class ComparisonFacts:
    """Everything on the page of two runs."""

    first: EvaluatedRun
    second: EvaluatedRun
    overlap: Overlap
    shared: SharedImages | None
    """None if the runs share no images."""
    whole: tuple[ModelMetrics, ModelMetrics]
    """Metrics of each run on all of its images."""
    outcome: Outcome
    """Of the second run against the first; apart: they share no images."""
    headline: str
    """The outcome in a sentence."""
    reasons: tuple[str, ...]
    """Sentences."""


def compare_runs(
    runs: tuple[EvaluatedRun, EvaluatedRun],
    evaluations: tuple[RunPredictions, RunPredictions],
    *,
    most: int,
    read_thumbnails: ReadPictures,
    newest: Literal[0, 1] = 1,
    share: int = 1,
) -> ComparisonFacts:
    """Compare the second run with the first, on the images that both evaluated.

    Where their labels differ, those of the run `newest` count. The evaluations have one image in
    `share`.
    """
    pairs, overlap = pair(*evaluations)
    shared = None
    if pairs:
        labels = [evaluations[newest].labels[rows[newest]] for rows in pairs]
        before, after = (
            run.take([rows[place] for rows in pairs], labels)
            for place, run in enumerate(evaluations)
        )
        readers = [functools.partial(read_thumbnails, run) for run in evaluations]
        shared = _compare_shared(before, after, readers, same=overlap.shared, most=most)
    outcome, headline, reasons = _judge(runs, overlap, shared, newest)
    if share > 1:
        reasons += (
            f"The runs have too many predictions for the memory: all numbers here are from one "
            f"image in {share:,}, chosen by its content.",
        )
    return ComparisonFacts(
        first=runs[0],
        second=runs[1],
        overlap=overlap,
        shared=shared,
        whole=(measure(evaluations[0].predictions), measure(evaluations[1].predictions)),
        outcome=outcome,
        headline=headline,
        reasons=reasons,
    )


def pair(first: RunPredictions, second: RunPredictions) -> tuple[list[tuple[int, int]], Overlap]:
    """Return the rows in both runs of each image that they share, and how the runs overlap.

    Images whose label is the same in both come first. Copies of an image pair one by one.
    """
    runs = (first, second)
    same = _match(*(enumerate(zip(run.keys, run.labels, strict=True)) for run in runs))
    paired = [{rows[place] for rows in same} for place in (0, 1)]
    relabelled = _match(
        *(
            [(row, key) for row, key in enumerate(run.keys) if row not in rows]
            for run, rows in zip(runs, paired, strict=True)
        )
    )
    pairs = [*same, *relabelled]
    only_first, only_second = (len(run.keys) - len(pairs) for run in runs)
    return pairs, Overlap(len(same), len(relabelled), only_first, only_second)


def _match(
    first: Iterable[tuple[int, Any]], second: Iterable[tuple[int, Any]]
) -> list[tuple[int, int]]:
    """Pair rows of equal content, in the order of the content."""
    rows: dict[Any, deque[int]] = defaultdict(deque)
    for row, content in second:
        rows[content].append(row)
    ordered = sorted(first, key=lambda item: item[1])
    return [(row, rows[content].popleft()) for row, content in ordered if rows[content]]


def _compare_shared(
    before: Evaluated,
    after: Evaluated,
    readers: Sequence[Callable[[Collection[str]], Mapping[str, Thumbnail | None]]],
    *,
    same: int,
    most: int,
) -> SharedImages:
    """Measure both models on the same images, of which up to `most` are shown each way.

    The first `same` images have the same label in both runs. `readers` make thumbnails of the
    images of each run.
    """
    right, now_right = before.candidate.stats.right, after.candidate.stats.right
    _, changes = estimate_intervals(after.candidate, before.candidate)
    metrics, baseline = measure(after.candidate), measure(before.candidate)
    recalls = measure_slices(after.slices, now_right, right)
    comparison = Comparison(
        metrics=metrics,
        intervals={},
        baseline=baseline,
        compared=len(right),
        differences={name: metrics.scalars[name] - baseline.scalars[name] for name in METRICS},
        changes=changes,
        curves=(),
        slices=tuple(sorted(recalls, key=lambda part: part.accuracy - (part.baseline or 0.0))),
        confused=(),
    )
    lost = _list_surest(right & ~now_right, before, after)
    won = _list_surest(now_right & ~right, before, after)
    shown = []
    for wrong, rows, read in zip((before, after), (won[:most], lost[:most]), readers, strict=True):
        pictures = read([wrong.filenames[row] for row in rows])
        shown.append(tuple(PredictedImage.of(wrong, row, pictures) for row in rows.tolist()))
    return SharedImages(
        change=AccuracyChange.of(right, now_right),
        unchanged=AccuracyChange.of(right[:same], now_right[:same]) if same else None,
        comparison=comparison,
        lost=len(lost),
        won=len(won),
        shown_lost=shown[1],
        shown_won=shown[0],
    )


def _list_surest(changed: Flags, before: Evaluated, after: Evaluated) -> Ints:
    """Return the changed rows, those first for which the less confident model is most confident."""
    rows = np.flatnonzero(changed)
    sure = np.minimum(*(run.candidate.stats.confidence[rows] for run in (before, after)))
    order: Ints = rows[np.argsort(-sure, kind="stable")]
    return order


def _judge(
    runs: tuple[EvaluatedRun, EvaluatedRun],
    overlap: Overlap,
    shared: SharedImages | None,
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
    sentences = tuple(sentence(reason) for reason in reasons)
    if shared is None:
        headline = f"{first} and {second} cannot be compared: they were evaluated on different "
        all_reasons = ("No image was evaluated by both runs.", *sentences)
        return "apart", sentence(f"{headline}images."), all_reasons
    max_drop = runs[1].max_drop
    if overlap.relabelled:
        sentences = (*_describe_labels(runs, overlap, shared, newest), *sentences)
    outcome, claim = shared.change.relate(max_drop), shared.change.tell(first, max_drop)
    numbers = (
        f"{sentence(shared.change.explain(first, second, max_drop))}.",
        f"From {first} to {second}, {count(shared.lost, 'image')} went from right to wrong "
        f"and {shared.won:,} from wrong to right.",
    )
    if outcome == "undecided":
        claim = claim.replace(" it ", f" {second} ", 1)
        headline = f"Undecided: {claim}."
    else:
        headline = sentence(f"{second} is {claim}.")
    return outcome, headline, (*numbers, *sentences)


def _describe_overlap(overlap: Overlap, first: str, second: str) -> Iterator[str]:
    if overlap.is_whole:
        yield f"Both runs evaluated the same {count(overlap.shared, 'image')}."
        return
    yield (
        f"Images evaluated by both runs: {overlap.both:,}; only by {first}: "
        f"{overlap.only_first:,}; only by {second}: {overlap.only_second:,}. Images are matched by "
        "content."
    )


def _describe_labels(
    runs: tuple[EvaluatedRun, EvaluatedRun], overlap: Overlap, shared: SharedImages, newest: int
) -> Iterator[str]:
    """Say by which labels both models are judged, and how they relate without the changed ones."""
    first, second = (run.name for run in runs)
    split = "" if count_folds(runs[newest].split) else f"{runs[newest].split} "
    yield (
        f"{count(overlap.relabelled, f'{split}label')} changed between the runs. Both models are "
        f"judged by the labels of {runs[newest].name}, the newer run."
    )
    if shared.unchanged:
        numbers = shared.unchanged.explain(first, second, runs[1].max_drop)
        number = count(overlap.shared, "image")
        yield f"On the {number} with unchanged labels, {numbers}."


def _describe_corrections(first: EvaluatedRun, second: EvaluatedRun) -> Iterator[str]:
    """Say which corrections the runs used, and whether they are all that differs."""
    used, others = (run.data.get(_CORRECTIONS) or "none" for run in (first, second))
    if used == others:
        return
    yield f"Corrections of {first.name}: {used}; of {second.name}: {others}."
    more = [
        part.title
        for part in list_parts(first, second)
        if any(row.name not in _OF_CORRECTIONS and ": " not in row.name for row in part.rows)
    ]
    if more:
        yield (
            f"The runs differ in {' and '.join(more)}, too, so the corrections alone may not "
            "explain the difference."
        )


def list_parts(first: EvaluatedRun, second: EvaluatedRun) -> tuple[DifferingPart, ...]:
    """List what differs in images, settings, code and versions."""
    labels = _list_differences(dict(_count_labels(first)), dict(_count_labels(second)))
    labels = sorted(labels, key=lambda row: -abs((row.second or 0) - (row.first or 0)))
    parts = {
        "images": [*_list_differences(_describe_data(first), _describe_data(second)), *labels],
        "settings": _list_differences(first.configuration, second.configuration),
        "code of steps": _list_differences(first.code, second.code),
        "versions": _list_differences(first.versions, second.versions),
    }
    return tuple(DifferingPart(title, tuple(rows)) for title, rows in parts.items())


def _list_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    """Return the values that differ, by name; None stands for a missing value."""
    names = sorted(first.keys() | second.keys())
    rows = (Difference(name, first.get(name), second.get(name)) for name in names)
    return [row for row in rows if row.first != row.second]


def _describe_data(run: EvaluatedRun) -> dict[str, Any]:
    counts = {f"{split}: images": sum(labels.values()) for split, labels in run.examples.items()}
    classes = {f"{split}: classes": len(labels) for split, labels in run.examples.items()}
    return {**run.data, **counts, **classes}


def _count_labels(run: EvaluatedRun) -> Iterator[tuple[str, int]]:
    for split, labels in run.examples.items():
        for label, images in labels.items():
            yield f"{split}: {label}", images


def render_comparison(facts: ComparisonFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections = [
        (key, title, render_template(f"{template}.html.j2", facts=facts, **values))
        for key, title, template, values in _describe_sections(facts)
    ]
    return str(render_template("comparison.html.j2", facts=facts, sections=sections))


def _describe_sections(facts: ComparisonFacts) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield key, title, name of the template, and its values."""
    yield "summary", "Summary", "comparison_summary", {"whole": list(_pair_metrics(facts))}
    if facts.shared:
        comparison = facts.shared.comparison
        names = ModelNames(facts.second.name, facts.first.name)
        metrics = describe_comparison(comparison, names=names)
        yield "metrics", "Metrics", "comparison_metrics", metrics
        recalls = describe_slices(comparison, names=names, by_change=True)
        yield "classes", "Per-class recall", "slices", recalls
        yield "images", "Changed predictions", "comparison_images", {}
    parts = list_parts(facts.first, facts.second)
    yield "differences", "What differs", "comparison_differences", {"parts": parts, "most": _MOST}


def _pair_metrics(facts: ComparisonFacts) -> Iterator[tuple[str, float, float]]:
    """Yield the title of each metric, and its value for each run on all of its images.

    Of runs that evaluated the same images, the metrics have a section.
    """
    first, second = facts.whole
    classes = max(len(first.labels), len(second.labels))
    for name, metric in METRICS.items() if not facts.overlap.is_whole else ():
        values = first.scalars[name], second.scalars[name]
        if metric.top < classes and not all(map(math.isnan, values)):
            yield metric.title, *values
