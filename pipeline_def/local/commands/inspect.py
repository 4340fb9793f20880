"""`local_runner.py inspect`: would a run on this folder start, and with which choices?"""

import collections
import dataclasses
import statistics
from collections.abc import Iterator, Mapping

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from components.contract.confidence import widest
from components.contract.errors import ConfigurationError
from components.contract.example import EVAL, TEST, TRAIN
from components.contract.printable import describe_bytes, format_duration, make_printable
from components.contract.rules_of_thumb import (
    ENOUGH_TO_START_AT_RANDOM,
    FEW_FOR_WEIGHTS,
    FEW_IMAGES,
    LEAST_FOR_FOLDS,
    OWN_NETWORKS,
    SMALL_SIDE,
)
from components.ingest.lookup import list_source
from components.ingest.plan.splits import MIN_SPLIT_IMAGES
from components.ingest.source.listing import Listing
from components.ingest.survey import Survey, TimedSample, try_images
from components.ingest.write.accounting import check_usable
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.local.commands.run import name_folder
from pipeline_def.local.first_look import FirstLook, describe, look
from pipeline_def.local.output.locations import choose_output, make_absolute
from pipeline_def.local.preparation import use_corrections
from pipeline_def.local.run_display import print_row, print_whole

USAGE = """usage: local_runner.py inspect DIR [OPTION ...]

Inspects a folder of images within seconds: classes, sizes, formats, files that
ingest would reject, network and recipe that a run would use, and what it would
write. Exits with 0 if a run would start. Takes all options of a run.
"""

_BAR_WIDTH = 40
_LEAST_LABEL = 10
_MOST_LABELS = 30
_MOST_SUSPECTS = 10
_EXAMPLES = 3
_SECONDS = 5.0

# With fewer, a class hardly has an image in the eval split; a rule of thumb.
_FEW_OF_LABEL = 20
# From this ratio, a model can look good while ignoring rare classes; a rule of thumb.
_UNBALANCED = 10
# With less of an image, an object may be cut off; photographs have 0.56 and more.
_MUCH_SHOWN = 0.5


def inspect(arguments: list[str]) -> int:
    """Inspect a folder, the first argument or `--data`; return 0 if a run would start."""
    config, _ = parse(
        name_folder(arguments),
        prog="local_runner.py inspect",
        usage=USAGE,
    )
    if config.data is None:
        raise ConfigurationError("Name a folder: local_runner.py inspect DIR.")
    place, _ = choose_output(config)
    config = make_absolute(dataclasses.replace(config, output=place))
    _inspect(use_corrections(config, config.output))
    return 0


def _inspect(config: Config) -> None:
    """Print classes, sizes, formats, suspicious files and estimates for `config.data`.

    Raises:
        UserError: a run would not start.
    """
    console = Console(highlight=False)
    listing = list_source(str(config.data), config.ingest)
    _print_labels(console, listing)
    if listing.root != config.data:
        print_whole(console, "Folder", listing.root)
    # Shown before anything is refused, as it often tells why.
    for name, text in describe(listing, examples=_EXAMPLES):
        print_row(console, name, text)
    seen = look(listing, config)
    survey = seen.survey
    trial = try_images(listing, config.ingest, seconds=_SECONDS)
    for name, text in _facts(listing, seen, trial):
        print_row(console, name, text)
    for advice in _advice(listing, survey, seen.config):
        print_row(console, "Advice", advice)
    for warning in _warnings(listing, survey, trial, config):
        print_row(console, "Warning", warning, style="yellow")
    if trial.decoded == len(listing.files):
        check_usable([(s.path, s.category) for s in trial.suspects], listing, config.ingest)


_NEAR_DUPLICATES = {
    "keep": "near duplicates are not looked for",
    "together": "near duplicates will stay in one split",
}


def _print_labels(console: Console, listing: Listing) -> None:
    """Draw a bar per label and split, the most frequent labels first."""
    # The number and the longest bar take the rest of the line.
    room = max(_LEAST_LABEL, console.width - _BAR_WIDTH - 16) if console.is_terminal else 1000
    for split, counts in listing.labels_per_split().items():
        console.print(Text(make_printable(split or "images"), "bold"))
        largest = max(counts.values())
        shown = [
            (make_printable(label), count) for label, count in counts.most_common(_MOST_LABELS)
        ]
        width = min(max(cell_len(label) for label, _ in shown), room)
        for label, count in shown:
            bar = "█" * max(1, round(_BAR_WIDTH * count / largest))
            name = Text(label)
            name.truncate(width, overflow="ellipsis", pad=True)
            line = Text.assemble("  ", name, f"  {count:>9,}  ", (bar, "cyan"))
            console.print(line, soft_wrap=True)
        if len(counts) > _MOST_LABELS:
            console.print(f"  … and {len(counts) - _MOST_LABELS:,} more")


def _facts(listing: Listing, seen: FirstLook, trial: TimedSample) -> Iterator[tuple[str, str]]:
    survey, config = seen.survey, seen.config
    size = listing.tally.size
    labels = listing.labels()
    yield "Files", f"{len(listing.files):,} in {len(labels):,} classes, {describe_bytes(size)}"
    reasons = collections.Counter(entry.reason for entry in listing.skipped)
    if reasons:
        yield "Skipped", ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
    widths, heights = zip(*survey.sizes, strict=True)
    yield "Width", _range(widths)
    yield "Height", _range(heights)
    yield "Formats", ", ".join(f"{name} {count:,}" for name, count in survey.formats.items())
    yield "Sample", f"sizes and formats are from {survey.sampled:,} files"
    side = config.transform.size
    yield "Model", f"{config.model.title} at {side} x {side} pixels"
    yield "Weights", config.model.origin
    yield "Recipe", str(seen.recipe)
    yield "Options", seen.chosen or "as you set them"
    yield from (("Note", text) for text in seen.ineffective)
    planned = config.ingest.near_duplicates if config.ingest.finds_near_duplicates else "keep"
    yield "Copies", _NEAR_DUPLICATES[planned]
    seconds = len(listing.files) / (trial.images_per_second * config.ingest.workers)
    written = describe_bytes(size * trial.stored_fraction)
    yield "Ingest", f"about {written} to write and {format_duration(seconds)} to check the images"


def _advice(listing: Listing, survey: Survey, config: Config) -> Iterator[str]:
    """Yield advice for a better model."""
    images, side = listing.expected(TRAIN), survey.shorter_side
    model, few = config.model, side > SMALL_SIDE and images < ENOUGH_TO_START_AT_RANDOM
    if few and model.weights == "none" and not model.build_fn:
        network = " --model.name auto" if model.name in OWN_NETWORKS else ""
        yield (
            f"{images:,} photographs are few for random weights: start from pretrained weights "
            f"with --model.weights imagenet{network}, or from an earlier training"
        )
    if config.transform.fit == "crop" and survey.shown < _MUCH_SHOWN:
        yield (
            f"the model sees the central square, {survey.shown:.0%} of the typical image: show all "
            "of it with --transform.fit letterbox, or stretch"
        )
    evaluated = listing.expected(TEST) or listing.expected(EVAL)
    if evaluated < MIN_SPLIT_IMAGES:
        yield (
            f"the model will be evaluated on about {evaluated:,} images, so the accuracy will be "
            f"known only to ± {widest(evaluated):.2f}: use {MIN_SPLIT_IMAGES} or more"
            f"{_describe_folds(listing, config)}"
        )


def _describe_folds(listing: Listing, config: Config) -> str:
    """Say, as a clause, that folds judge all images, if they may."""
    by_hash = listing.tally.labels.keys() == {None} and not config.ingest.splits
    unwanted = config.training.folds == 0 or config.export.false_alarms
    few = FEW_FOR_WEIGHTS if config.model.pretrained else FEW_IMAGES
    if unwanted or not by_hash or not LEAST_FOR_FOLDS <= len(listing.files) < few:
        return ""
    text = f"; cross-validation (training.folds) judges all, to ± {widest(len(listing.files)):.2f}"
    return text + ("" if config.training.folds != "auto" else ", unless that takes too long")


def _range(values: tuple[int, ...]) -> str:
    return f"{min(values):,} to {max(values):,} pixels, median {statistics.median(values):,.0f}"


def _warnings(
    listing: Listing, survey: Survey, trial: TimedSample, config: Config
) -> Iterator[str]:
    suspects = {suspect.path: suspect for suspect in (*survey.suspects, *trial.suspects)}
    for suspect in list(suspects.values())[:_MOST_SUSPECTS]:
        yield f"{suspect.path}: {suspect.category}, {suspect.reason}"
    rejected = len(trial.suspects) / trial.decoded
    if rejected > config.ingest.max_reject_fraction:
        yield (
            f"{rejected:.0%} of the sample would be rejected; a run stops above "
            f"{config.ingest.max_reject_fraction:.0%} (ingest.max_reject_fraction)"
        )
    for split, counts in listing.labels_per_split().items():
        yield from _balance_warnings(split, counts)


def _balance_warnings(split: str | None, counts: Mapping[str, int]) -> Iterator[str]:
    where = f" in {split}" if split else ""
    (largest, most), (smallest, fewest) = (
        pick(counts.items(), key=lambda item: item[1]) for pick in (max, min)
    )
    if most >= _UNBALANCED * fewest:
        yield f"unbalanced{where}: {most:,} images of {largest!r}, {fewest:,} of {smallest!r}"
    few = [label for label, count in counts.items() if count < _FEW_OF_LABEL]
    if few:
        more = f" and {len(few) - 1:,} more classes" if few[1:] else ""
        yield f"fewer than {_FEW_OF_LABEL} images{where} of {few[0]!r}{more}"
