"""Compares two runs, on a page made of sections of the report: what differs, and who is better.

Images are paired by content: files may have been renamed or moved.
"""

import collections
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from components.contract.example import EVAL, count_folds
from components.images.picture import Thumbnail
from components.metrics.classification_metrics import Comparison, measure, measure_slices
from components.metrics.intervals import estimate_intervals
from components.metrics.metric_table import METRICS
from components.metrics.predictions import Evaluated, Flags, Ints, Predictions
from components.metrics.proof import AccuracyChange, Relation
from components.report.page.document import render_template
from components.report.page.drawing import ModelNames
from components.report.page.formatting import count, sentence
from components.report.page.metrics import describe_comparison, describe_slices
from components.report.shown import PredictedImage

Differences = Mapping[str, tuple[Any, Any]]
"""Name of a fact → its value in each run; None where it is missing."""

CORRECTIONS = "corrections"
"""Name of the corrections among the facts of the images."""


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """One of the two runs, with its predictions."""

    name: str
    """Such as run 3; A or B if the runs have the same number in different outputs."""
    id: str
    title: str
    """Names the run as the list of runs does: its number and start."""
    output: str
    """Output folder of the run."""
    split: str
    """The evaluated split."""
    parts: Mapping[str, Mapping[str, Any]]
    """Part of the run, such as its settings or "images" → name of a fact → its value."""
    max_drop: float
    """Largest drop in accuracy that still lets a model replace another."""
    model: str
    """URI of the model; the same for both runs if nothing was trained in between."""
    evaluated: Evaluated
    keys: Sequence[str]
    """Digest of the content of each evaluated image."""
    read_thumbnails: Callable[[Collection[str]], Mapping[str, Thumbnail | None]]
    """Maps file names to thumbnails of the images."""

    @property
    def labels(self) -> Sequence[str]:
        """The true label of each evaluated image."""
        return self.evaluated.slices["class"]

    @property
    def accuracy(self) -> float:
        """Accuracy on all of its images."""
        return float(self.evaluated.candidate.stats.right.mean())

    def judge(self, rows: Sequence[int], labels: Sequence[str]) -> Evaluated:
        """Return the predictions for some of the images, judged by other labels."""
        model = self.evaluated.candidate
        columns = {label: column for column, label in enumerate(model.labels)}
        ids: Ints = np.array([columns.get(label, -1) for label in labels], np.int64)
        names = tuple(self.evaluated.filenames[row] for row in rows)
        judged = Predictions(model.labels, ids, model.probabilities[list(rows)])
        return Evaluated(names, {"class": tuple(labels)}, judged)


class Overlap(NamedTuple):
    """Numbers of the images that the runs share or not."""

    both: int
    """In both runs, with any label."""
    relabelled: int
    """In both runs with different labels."""
    only_first: int
    """In the first run only."""
    only_second: int


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


@dataclass(frozen=True, eq=False)
class ComparisonFacts:
    """Everything on the page of two runs."""

    first: EvaluatedRun
    second: EvaluatedRun
    newer: EvaluatedRun
    """The one of them whose labels count."""
    share: int
    """The evaluations have one image in so many."""
    overlap: Overlap
    shared: SharedImages | None
    """None if the runs share no images."""
    parts: Mapping[str, Differences]
    """Part of the runs, such as their settings → what differs in it."""

    @property
    def outcome(self) -> Relation | Literal["apart"]:
        """Of the second run against the first; apart: they share no images."""
        return self.shared.change.relate(self.second.max_drop) if self.shared else "apart"

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        return sentence(next(_tell(self)))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences."""
        _, *numbers = _tell(self)
        return tuple(map(sentence, (*numbers, *_describe_conditions(self))))


def compare_runs(
    first: EvaluatedRun,
    second: EvaluatedRun,
    *,
    most: int,
    newest: Literal[0, 1] = 1,
    share: int = 1,
) -> ComparisonFacts:
    """Compare the second run with the first, on the images that both evaluated.

    Where their labels differ, those of the run `newest` count. Up to `most` images are shown each
    way. The evaluations have one image in `share`.
    """
    pairs, newer = pair(first, second), (first, second)[newest]
    same = np.array([first.labels[row] == second.labels[other] for row, other in pairs], bool)
    only_first, only_second = (len(run.keys) - len(pairs) for run in (first, second))
    shared = None
    if pairs:
        labels = [newer.labels[rows[newest]] for rows in pairs]
        shared = _compare_shared(first, second, pairs, labels=labels, same=same, most=most)
    return ComparisonFacts(
        first=first,
        second=second,
        newer=newer,
        share=share,
        overlap=Overlap(len(pairs), int((~same).sum()), only_first, only_second),
        shared=shared,
        parts={
            part: _list_differences(first.parts[part], second.parts[part]) for part in first.parts
        },
    )


def pair(first: EvaluatedRun, second: EvaluatedRun) -> list[tuple[int, int]]:
    """Return the rows in both runs of each image that they share, in the order of the content.

    Copies of an image pair one by one.
    """
    rows, others = map(_number_copies, (first, second))
    return [(row, others[copy]) for copy, row in rows.items() if copy in others]


def _number_copies(run: EvaluatedRun) -> dict[tuple[str, int], int]:
    """Map the digest of each image, and the number of the copy, to its row."""
    copies, rows = collections.Counter[str](), {}
    for key, _, row in sorted(zip(run.keys, run.labels, range(len(run.keys)), strict=True)):
        rows[key, copies[key]] = row
        copies[key] += 1
    return rows


def _compare_shared(
    first: EvaluatedRun,
    second: EvaluatedRun,
    pairs: Sequence[tuple[int, int]],
    *,
    labels: Sequence[str],
    same: Flags,
    most: int,
) -> SharedImages:
    """Measure both models on the images in `pairs`, by `labels`; `same`: which had them in both."""
    before = first.judge([row for row, _ in pairs], labels)
    after = second.judge([row for _, row in pairs], labels)
    right, now_right = before.candidate.stats.right, after.candidate.stats.right
    _, changes = estimate_intervals(after.candidate, before.candidate)
    metrics, baseline = measure(after.candidate), measure(before.candidate)
    recalls = measure_slices(after.slices, now_right, right)
    comparison = Comparison(
        metrics=metrics,
        intervals={},
        baseline=baseline,
        compared=len(pairs),
        differences={name: metrics.scalars[name] - baseline.scalars[name] for name in METRICS},
        changes=changes,
        slices=tuple(sorted(recalls, key=lambda part: part.accuracy - (part.baseline or 0.0))),
        confused=(),
    )
    # Of an image, as sure as the less confident model is.
    sure = np.minimum(*(model.candidate.stats.confidence for model in (before, after)))

    def show(run: EvaluatedRun, wrong: Evaluated, changed: Flags) -> tuple[PredictedImage, ...]:
        rows = [row for row in np.argsort(-sure, kind="stable").tolist() if changed[row]][:most]
        pictures = run.read_thumbnails([wrong.filenames[row] for row in rows])
        return tuple(PredictedImage.of(wrong, row, pictures) for row in rows)

    lost, won = right & ~now_right, now_right & ~right
    return SharedImages(
        change=AccuracyChange.of(right, now_right),
        unchanged=AccuracyChange.of(right[same], now_right[same]) if same.any() else None,
        comparison=comparison,
        lost=int(lost.sum()),
        won=int(won.sum()),
        shown_lost=show(second, after, lost),
        shown_won=show(first, before, won),
    )


def _tell(facts: ComparisonFacts) -> Iterator[str]:
    """Yield the outcome, by the rule of the Evaluator's verdict, and the numbers behind it."""
    first, second, shared = facts.first.name, facts.second.name, facts.shared
    if not shared:
        yield f"{first} and {second} cannot be compared: they were evaluated on different images."
        yield "No image was evaluated by both runs."
        return
    max_drop = facts.second.max_drop
    claim = shared.change.tell(first, max_drop)
    if facts.outcome == "undecided":
        yield f"Undecided: {claim.replace(' it ', f' {second} ', 1)}."
    else:
        yield f"{second} is {claim}."
    yield f"{shared.change.explain(first, second, max_drop)}."
    yield (
        f"From {first} to {second}, {count(shared.lost, 'image')} went from right to wrong and "
        f"{shared.won:,} from wrong to right."
    )
    if relabelled := facts.overlap.relabelled:
        split = "" if count_folds(facts.newer.split) else f"{facts.newer.split} "
        yield (
            f"{count(relabelled, f'{split}label')} changed between the runs. Both models are "
            f"judged by the labels of {facts.newer.name}, the newer run."
        )
        if shared.unchanged:
            number = count(shared.unchanged.images, "image")
            numbers = shared.unchanged.explain(first, second, max_drop)
            yield f"On the {number} with unchanged labels, {numbers}."


def _describe_conditions(facts: ComparisonFacts) -> Iterator[str]:
    """Say how the images overlap, and what else the difference may be due to."""
    first, second, overlap = facts.first, facts.second, facts.overlap
    if overlap.only_first or overlap.only_second or overlap.relabelled:
        yield (
            f"Images evaluated by both runs: {overlap.both:,}; only by {first.name}: "
            f"{overlap.only_first:,}; only by {second.name}: {overlap.only_second:,}. Images are "
            "matched by content."
        )
    else:
        yield f"Both runs evaluated the same {count(overlap.both, 'image')}."
    if CORRECTIONS in facts.parts["images"]:
        used, others = (found or "none" for found in facts.parts["images"][CORRECTIONS])
        yield f"Corrections of {first.name}: {used}; of {second.name}: {others}."
    for run in (first, second):
        if run.split == EVAL:
            yield (
                f"{run.name} was evaluated on its {EVAL} split: if that also selected its weights, "
                "its scores are slightly optimistic."
            )
    if first.model and first.model == second.model:
        yield "Both runs evaluated the same model: nothing was trained in between."
    if facts.share > 1:
        yield (
            "The runs have too many predictions for the memory: all numbers here are from one "
            f"image in {facts.share:,}, chosen by its content."
        )


def _list_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Differences:
    """Return the facts that differ."""
    values = {name: (first.get(name), second.get(name)) for name in {**first, **second}}
    return {name: both for name, both in values.items() if both[0] != both[1]}


def render_comparison(facts: ComparisonFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections: dict[str, tuple[str, str, dict[str, Any]]] = {}
    sections["summary"] = "Summary", "comparison_summary", {}
    if facts.shared:
        comparison = facts.shared.comparison
        names = ModelNames(facts.second.name, facts.first.name)
        metrics = describe_comparison(comparison, names=names)
        recalls = describe_slices(comparison, names=names, by_change=True)
        sections["metrics"] = "Metrics", "comparison_metrics", metrics
        sections["classes"] = "Per-class recall", "slices", recalls
        sections["images"] = "Changed predictions", "comparison_images", {}
    sections["differences"] = "What differs", "comparison_differences", {}
    rendered = [
        (key, title, render_template(f"{template}.html.j2", facts=facts, **values))
        for key, (title, template, values) in sections.items()
    ]
    return str(render_template("comparison.html.j2", facts=facts, sections=rendered))
