"""Compares two runs, on a page made of sections of the report: what differs, and who is better.

Images are paired by content: files may have been renamed or moved.
"""

import collections
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from components.images.thumbnails import Thumbnail
from components.metrics.classification_metrics import compare_models
from components.metrics.predictions import Evaluated, Ints, Predictions
from components.metrics.proof import AccuracyChange, Relation
from components.report.page.document import render_template
from components.report.page.drawing import ModelNames
from components.report.page.formatting import count, sentence
from components.report.page.metrics import describe_comparison, describe_slices
from components.report.shown import PredictedImage

# Per direction; 48 pictures of 2 to 5 KB.
_MOST_IMAGES = 48


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """One of the two runs, with its predictions."""

    name: str
    """Such as run 3; A or B if the runs have the same number in different outputs."""
    title: str
    """Names the run as the list of runs does: its number and start."""
    output: str
    split: str
    parts: Mapping[str, Mapping[str, Any]]
    """Part of the run, such as its settings or "images" → name of a fact → its value."""
    max_drop: float
    """Largest drop in accuracy that still lets a model replace another."""
    evaluated: Evaluated
    keys: Sequence[str]
    """Digest of the content of each evaluated image."""
    read_thumbnails: Callable[[Collection[str]], Mapping[str, Thumbnail | None]]
    """Maps file names to thumbnails of the images."""

    @property
    def labels(self) -> Sequence[str]:
        """The true label of each evaluated image."""
        return self.evaluated.slices["class"]


@dataclass(frozen=True, eq=False)
class ComparisonFacts:
    """Everything on the page of two runs."""

    first: EvaluatedRun
    second: EvaluatedRun
    newer: EvaluatedRun
    """The one of them whose labels count."""
    share: int
    """The evaluations have one image in so many."""
    shared: Evaluated
    """The second model against the first one, on the images that are compared."""
    relabelled: int
    """Number of them whose label is not the same in both runs."""
    change: AccuracyChange | None
    """The accuracy of the second model against that of the first; None without such images."""
    unchanged: AccuracyChange | None
    """The same on the images whose label is the same in both runs."""
    lost: Ints
    """Rows that went from right to wrong; those that both models are surest about come first."""
    won: Ints
    """From wrong to right, likewise."""
    parts: Mapping[str, Mapping[str, tuple[Any, Any]]]
    """Part of the runs, such as their settings → name of what differs → value in each, or None."""

    @property
    def outcome(self) -> Relation | Literal["apart"]:
        """Of the second run against the first; apart: they share no images."""
        return self.change.relate(self.second.max_drop) if self.change else "apart"

    @property
    def headline(self) -> str:
        """The outcome in a sentence, by the rule of the Evaluator's verdict."""
        first, second = self.first.name, self.second.name
        if not self.change:
            return sentence(f"{first} and {second} cannot be compared: they share no images.")
        claim = self.change.tell(first, self.second.max_drop)
        if self.outcome == "undecided":
            return f"Undecided: {claim.replace(' it ', f' {second} ', 1)}."
        return sentence(f"{second} is {claim}.")

    @property
    def reasons(self) -> list[str]:
        """The numbers behind the outcome, in sentences."""
        return [*map(sentence, _give_reasons(self))]


def compare_runs(
    first: EvaluatedRun, second: EvaluatedRun, *, newest: Literal[0, 1] = 1, share: int = 1
) -> ComparisonFacts:
    """Compare the second run with the first, on the images that both evaluated.

    Copies of an image pair one by one. Where labels differ, those of the run `newest` count; both
    models must know them. The evaluations have one image in `share`.
    """
    newer, models = (first, second)[newest], [run.evaluated.candidate for run in (first, second)]
    known = set(models[0].labels).intersection(models[1].labels)
    copies, others = _number_copies(first), _number_copies(second)
    pairs = [(copies[copy], others[copy]) for copy in copies if copy in others]
    pairs = [pair for pair in pairs if newer.labels[pair[newest]] in known]
    labels = tuple(newer.labels[pair[newest]] for pair in pairs)
    before, after = (
        _judge(model, [pair[place] for pair in pairs], labels) for place, model in enumerate(models)
    )
    same = np.array([first.labels[row] == second.labels[other] for row, other in pairs], bool)
    was, now = before.stats.right, after.stats.right
    order = np.argsort(-np.minimum(before.stats.confidence, after.stats.confidence), kind="stable")
    names = tuple(second.evaluated.filenames[other] for _, other in pairs)
    return ComparisonFacts(
        first=first,
        second=second,
        newer=newer,
        share=share,
        shared=Evaluated(names, {"class": labels}, after, before),
        relabelled=int((~same).sum()),
        change=AccuracyChange.of(was, now) if pairs else None,
        unchanged=AccuracyChange.of(was[same], now[same]) if same.any() else None,
        lost=order[(was & ~now)[order]],
        won=order[(now & ~was)[order]],
        parts={part: _list_differences(first, second, part) for part in first.parts},
    )


def _number_copies(run: EvaluatedRun) -> dict[tuple[str, int], int]:
    """Map the digest of each image, and the number of the copy, to its row."""
    copies, rows = collections.Counter[str](), {}
    for key, _, row in sorted(zip(run.keys, run.labels, range(len(run.keys)), strict=True)):
        rows[key, copies[key]] = row
        copies[key] += 1
    return rows


def _judge(model: Predictions, rows: Sequence[int], labels: Sequence[str]) -> Predictions:
    """Return the predictions in some rows, judged by other labels."""
    columns = {label: column for column, label in enumerate(model.labels)}
    ids: Ints = np.array([columns[label] for label in labels], np.int64)
    return Predictions(model.labels, ids, model.probabilities[list(rows)])


def _list_differences(
    first: EvaluatedRun, second: EvaluatedRun, part: str
) -> dict[str, tuple[Any, Any]]:
    left, right = first.parts[part], second.parts[part]
    values = {name: (left.get(name), right.get(name)) for name in {**left, **right}}
    return {name: both for name, both in values.items() if both[0] != both[1]}


def _give_reasons(facts: ComparisonFacts) -> Iterator[str]:
    first, second, max_drop = facts.first.name, facts.second.name, facts.second.max_drop
    if facts.change:
        yield f"{facts.change.explain(first, second, max_drop)}."
        yield (
            f"From {first} to {second}, {count(len(facts.lost), 'image')} went from right to wrong "
            f"and {len(facts.won):,} from wrong to right."
        )
    if facts.relabelled:
        yield (
            f"{count(facts.relabelled, 'label')} changed between the runs. Both models are judged "
            f"by the labels of {facts.newer.name}, the newer run."
        )
        if same := facts.unchanged:
            numbers = same.explain(first, second, max_drop)
            yield f"On the {count(same.images, 'image')} with unchanged labels, {numbers}."
    both = len(facts.shared.filenames)
    yield (
        f"Images are matched by content; both runs evaluated {both:,} whose label both models "
        f"know, besides {len(facts.first.keys) - both:,} others in {first} and "
        f"{len(facts.second.keys) - both:,} in {second}."
    )
    if facts.share > 1:
        yield (
            "The runs have too many predictions for the memory: all numbers here are from one "
            f"image in {facts.share:,}, chosen by its content."
        )


def render_comparison(facts: ComparisonFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections: dict[str, tuple[str, str, dict[str, Any]]] = {}
    sections["summary"] = "Summary", "comparison_summary", {}
    if facts.change:
        names = ModelNames(facts.second.name, facts.first.name)
        comparison = compare_models(facts.shared)
        metrics = describe_comparison(comparison, names=names)
        recalls = describe_slices(comparison, names=names, by_change=True)
        sections["metrics"] = "Metrics", "comparison_metrics", metrics
        sections["classes"] = "Per-class recall", "slices", recalls
        sections["images"] = "Changed predictions", "comparison_images", _show_changed(facts)
    sections["differences"] = "What differs", "comparison_differences", {}
    rendered = [
        (key, title, render_template(f"{template}.html.j2", facts=facts, **values))
        for key, (title, template, values) in sections.items()
    ]
    return str(render_template("comparison.html.j2", facts=facts, sections=rendered))


def _show_changed(facts: ComparisonFacts) -> dict[str, list[PredictedImage]]:
    """Show the images of which one model is wrong, with its prediction."""
    rows = {"lost": facts.lost[:_MOST_IMAGES].tolist(), "won": facts.won[:_MOST_IMAGES].tolist()}
    names = {facts.shared.filenames[row] for chosen in rows.values() for row in chosen}
    pictures = facts.second.read_thumbnails(names)
    assert facts.shared.baseline
    wrong = {"lost": facts.shared, "won": replace(facts.shared, candidate=facts.shared.baseline)}
    return {
        change: [PredictedImage.of(wrong[change], row, pictures) for row in rows[change]]
        for change in rows
    }
