"""Whether the second run is better than the first: in words, for someone who reads nothing else."""

from __future__ import annotations

from components.contract.example import EVAL
from components.evaluation.verdict import estimate_images_needed
from components.report.comparison.facts import ComparedRun, Outcome, Overlap, Paired
from components.report.page.formatting import count, signed

_HEADLINES: dict[Outcome, str] = {
    "better": "{second} is better than {first}.",
    "worse": "{second} is worse than {first}.",
    "undecided": "Undecided: the images do not tell which of {first} and {second} is better.",
    "apart": "{first} and {second} cannot be compared: they were evaluated on different images.",
}


def judge_runs(
    runs: tuple[ComparedRun, ComparedRun], overlap: Overlap, paired: Paired | None
) -> tuple[Outcome, str, tuple[str, ...]]:
    """Return the outcome, the verdict in a sentence, and the reasons, each a sentence.

    The paired interval of the difference of accuracy decides; it is undecided if that contains 0.
    """
    names = {"first": runs[0].name, "second": runs[1].name}
    outcome = _decide(paired)
    reasons = [*_explain(paired, outcome, names), *_describe_overlap(overlap, names)]
    reasons += [note for run in runs if (note := _warn(run))]
    if runs[0].model and runs[0].model == runs[1].model:
        reasons.append("Both runs evaluated the same model: nothing was trained in between.")
    return outcome, _HEADLINES[outcome].format(**names), tuple(reasons)


def _decide(paired: Paired | None) -> Outcome:
    if paired is None:
        return "apart"
    if paired.change.low <= 0 <= paired.change.high:
        return "undecided"
    return "better" if paired.change.low > 0 else "worse"


def _explain(paired: Paired | None, outcome: Outcome, names: dict[str, str]) -> list[str]:
    if paired is None:
        return ["Without an image in common no difference can be measured image by image."]
    before, after = paired.accuracies
    low, high = paired.change.low, paired.change.high
    lost, won = count(paired.lost.total, "image"), f"{paired.won.total:,}"
    chance = ""
    if outcome == "undecided":
        chance = f", which contains 0: the difference may be chance{_say_how_many(paired)}"
    return [
        f"Accuracy on the same images: {after:.3f} for {names['second']}, {before:.3f} for "
        f"{names['first']}; the difference is {signed(paired.difference)}, with 95 % confidence "
        f"{signed(low)} to {signed(high)}{chance}.",
        f"From {names['first']} to {names['second']}, {lost} went from right to wrong and {won} "
        "from wrong to right.",
    ]


def _say_how_many(paired: Paired) -> str:
    """Say how many images would tell, if the difference stayed as it is."""
    images = sum(part.examples for part in paired.recalls)
    disagreement = (paired.lost.total + paired.won.total) / images
    spread = disagreement - paired.difference**2
    return estimate_images_needed(spread, abs(paired.difference), images)


def _describe_overlap(overlap: Overlap, names: dict[str, str]) -> list[str]:
    if overlap.is_whole:
        return [f"Both were evaluated on the same {count(overlap.shared, 'image')}."]
    sentences = [
        f"Images that both were evaluated on: {overlap.shared:,}; only {names['first']}: "
        f"{overlap.only_first:,}; only {names['second']}: {overlap.only_second:,}. Images are the "
        "same if their content is."
    ]
    if overlap.relabelled:
        number = count(overlap.relabelled, "image")
        sentences.append(f"Left out, as each run has another label for them: {number}.")
    return sentences


def _warn(run: ComparedRun) -> str:
    if run.split != EVAL:
        return ""
    return (
        f"{run.name} is judged by its {EVAL} split, which also chose its weights: its numbers are "
        "optimistic."
    )
