"""`local_runner.py inspect`: would a run on this folder start, and with which choices?"""

import collections
import dataclasses
import statistics
from collections.abc import Iterator, Mapping

from components.contract.confidence import widest
from components.contract.errors import ConfigurationError
from components.contract.example import EVAL, TEST
from components.contract.printable import describe_bytes, name_some
from components.ingest.lookup import list_source
from components.ingest.plan.splits import MIN_SPLIT_IMAGES, expect_images
from components.ingest.source.listing import Listing
from components.ingest.survey import Survey
from components.ingest.write.accounting import check_usable
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.config.options import describe_chosen
from pipeline_def.local.commands.run import name_folder
from pipeline_def.local.first_look import FirstLook, describe, look
from pipeline_def.local.output.locations import choose_output, make_absolute
from pipeline_def.local.preparation import use_corrections
from pipeline_def.local.run_display import print_row, print_whole

USAGE = """usage: local_runner.py inspect DIR [OPTION ...]

Inspects a folder of images within seconds: classes, sizes, formats, files that
ingest would reject, network and recipe that a run would use. Exits with 0 if a
run would start. Takes all options of a run.
"""

_MOST_SUSPECTS = 10
_NAMED = 3

# With fewer, a class hardly has an image in the eval split; a rule of thumb.
_FEW_OF_LABEL = 20
# From this ratio, a model can look good while ignoring rare classes; a rule of thumb.
_UNBALANCED = 10
# With less of an image, an object may be cut off; photographs have 0.56 and more.
_MUCH_SHOWN = 0.5


def inspect(arguments: list[str]) -> int:
    """Inspect a folder, the first argument or `--data`; return 0 if a run would start."""
    config, _ = parse(name_folder(arguments), prog="local_runner.py inspect", usage=USAGE)
    if config.data is None:
        raise ConfigurationError("Name a folder: local_runner.py inspect DIR.")
    place, _ = choose_output(config)
    config = make_absolute(dataclasses.replace(config, output=place))
    _inspect(use_corrections(config, config.output))
    return 0


def _inspect(config: Config) -> None:
    """Print classes, sizes, formats, suspicious files and advice for `config.data`.

    Raises:
        UserError: a run would not start.
    """
    listing = list_source(str(config.data), config.ingest)
    if listing.root != config.data:
        print_whole("Folder", listing.root)
    # Shown before anything is refused, as it often tells why.
    for name, text in describe(listing):
        print_row(name, text)
    seen = look(listing, config)
    survey = seen.survey
    for name, text in _facts(listing, seen):
        print_row(name, text)
    for advice in _advice(listing, survey, seen.config):
        print_row("Advice", advice)
    for warning in _warnings(listing, survey, config):
        print_row("Warning", warning, style="yellow")
    suspects = [(file.path, file.category) for file in survey.suspects]
    check_usable(suspects, listing, config.ingest)


def _facts(listing: Listing, seen: FirstLook) -> Iterator[tuple[str, str]]:
    survey, config = seen.survey, seen.config
    size, classes = describe_bytes(listing.tally.size), seen.classes
    yield "Files", f"{len(listing.files):,} in {classes:,} classes, {size}"
    reasons = collections.Counter(listing.skipped.values())
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
    yield "Options", describe_chosen(config.given, seen.recipe) or "as you set them"
    yield from (("Note", text) for text in seen.ineffective)


def _advice(listing: Listing, survey: Survey, config: Config) -> Iterator[str]:
    """Yield advice for a better model."""
    if config.transform.fit == "crop" and survey.shown < _MUCH_SHOWN:
        yield (
            f"the model sees the central square, {survey.shown:.0%} of the typical image: show all "
            "of it with --transform.fit letterbox, or stretch"
        )
    test, folds = expect_images(listing, TEST), config.training.folds
    evaluated = test or expect_images(listing, EVAL)
    # Without a test split, all images judge a model with folds.
    if evaluated < MIN_SPLIT_IMAGES and (test or folds in (0, "auto")):
        chosen = ", which a run chooses if it takes minutes" if folds == "auto" else ""
        other = "" if test else f", or cross-validation{chosen} (training.folds)"
        yield (
            f"a held-out split has about {evaluated:,} images, so the accuracy on it will be known "
            f"only to ± {widest(evaluated):.2f}: use {MIN_SPLIT_IMAGES} or more{other}"
        )


def _range(values: tuple[int, ...]) -> str:
    return f"{min(values):,} to {max(values):,} pixels, median {statistics.median(values):,.0f}"


def _warnings(listing: Listing, survey: Survey, config: Config) -> Iterator[str]:
    for suspect in survey.suspects[:_MOST_SUSPECTS]:
        yield f"{suspect.path}: {suspect.category}, {suspect.reason}"
    rejected = len(survey.suspects) / survey.sampled
    if rejected > config.ingest.max_reject_fraction:
        yield (
            f"{rejected:.1%} of the sample would be rejected; a run stops above "
            f"{config.ingest.max_reject_fraction:.1%} (ingest.max_reject_fraction)"
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
        yield f"fewer than {_FEW_OF_LABEL} images{where} of {name_some([*map(repr, few)], _NAMED)}"
