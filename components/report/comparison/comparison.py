"""Compares two runs, and decides which model is better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from components.contract.example import EVAL
from components.evaluation.metrics.classification_metrics import measure
from components.evaluation.verdict import TOO_FEW, estimate_images_needed
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
from components.report.comparison.runs import ComparedRun
from components.report.page.formatting import count, signed

Outcome = Literal["better", "worse", "undecided", "apart"]

_HEADLINES: dict[Outcome, str] = {
    "better": "{second} is better than {first}.",
    "worse": "{second} is worse than {first}.",
    "undecided": f"Undecided: {TOO_FEW}.",
    "apart": "{first} and {second} cannot be compared: they were evaluated on different images.",
}


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
) -> ComparisonFacts:
    """Compare the second run with the first, on the images that both evaluated."""
    *shared, overlap = pair(*evaluations)
    paired = None
    if overlap.shared:
        paired = measure_pairs(*shared, most=most, read_pictures=read_pictures)
    outcome, headline, reasons = _judge(runs, overlap, paired)
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
    runs: tuple[ComparedRun, ComparedRun], overlap: Overlap, paired: Paired | None
) -> tuple[Outcome, str, tuple[str, ...]]:
    """Return outcome, headline and reasons, by the paired interval of the accuracy difference."""
    names = {"first": runs[0].name, "second": runs[1].name}
    outcome = _decide(paired)
    reasons = [*_explain(paired, outcome, names), *_describe_overlap(overlap, names)]
    reasons += [
        f"{run.name} was evaluated on its {EVAL} split, which also selected its weights, so its "
        "scores are slightly optimistic."
        for run in runs
        if run.split == EVAL
    ]
    if runs[0].model and runs[0].model == runs[1].model:
        reasons.append("Both runs evaluated the same model: nothing was trained in between.")
    return outcome, _HEADLINES[outcome].format(**names), tuple(reasons)


def _decide(paired: Paired | None) -> Outcome:
    if paired is None:
        return "apart"
    if 0 in paired.change:
        return "undecided"
    return "better" if paired.change.low > 0 else "worse"


def _explain(paired: Paired | None, outcome: Outcome, names: dict[str, str]) -> Iterator[str]:
    if paired is None:
        yield "No image was evaluated by both runs."
        return
    before, after = paired.accuracies
    low, high = paired.change.low, paired.change.high
    chance = ""
    if outcome == "undecided":
        chance = f", which contains 0: it may be due to chance{_estimate_images(paired)}"
    yield (
        f"Accuracy on the same images: {after:.3f} for {names['second']}, {before:.3f} for "
        f"{names['first']}. The difference is {signed(paired.difference)}, 95% confidence interval "
        f"{signed(low)} to {signed(high)}{chance}."
    )
    yield (
        f"From {names['first']} to {names['second']}, {count(paired.lost.total, 'image')} went "
        f"from right to wrong and {paired.won.total:,} from wrong to right."
    )


def _estimate_images(paired: Paired) -> str:
    """Say how many images would decide, if the difference stayed the same."""
    images = sum(part.examples for part in paired.recalls)
    disagreement = (paired.lost.total + paired.won.total) / images
    spread = disagreement - paired.difference**2
    return estimate_images_needed(spread, abs(paired.difference), images)


def _describe_overlap(overlap: Overlap, names: dict[str, str]) -> Iterator[str]:
    if overlap.is_whole:
        yield f"Both runs evaluated the same {count(overlap.shared, 'image')}."
        return
    yield (
        f"Images evaluated by both runs: {overlap.shared:,}; only by {names['first']}: "
        f"{overlap.only_first:,}; only by {names['second']}: {overlap.only_second:,}. Images are "
        "matched by content."
    )
    if overlap.relabelled:
        number = count(overlap.relabelled, "image")
        yield f"Left out because the label differs between the runs: {number}."
