"""The first look at the images, which `run` and `inspect` share.

It checks what would fail later, and resolves the configuration: every value that follows from the
images is set here, before the pipeline is made, and stands in the record of the run.
"""

import collections
import dataclasses
import glob
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.contract.confidence import Z
from components.contract.errors import ConfigurationError, DataError
from components.contract.example import EVAL, TEST, TRAIN, sort_splits
from components.contract.printable import name_some
from components.evaluation.config import EvaluationConfig
from components.host.machine import require_formats
from components.ingest.plan.splits import expect_images, expect_labels, require_splits
from components.ingest.source.listing import Listing, check_labels, find_look_alikes
from components.ingest.source.values import describe_columns
from components.ingest.survey import Survey, take_survey
from components.predict.files import find_sources
from components.trainer.config.recipes import Recipe, resolve
from components.trainer.config.training import TrainingConfig
from components.trainer.networks.imagenet import check_imagenet
from components.trainer.networks.weights_file import name_network
from pipeline_def.code_digest import code_digest
from pipeline_def.config.config import Config
from pipeline_def.config.options import find_ineffective
from pipeline_def.steps import TRAINER

_LAYOUTS = {
    "label": "label/image: the folders are labels",
    "split": "split/label/image: the folders are splits, with label folders in them",
    "manifest": "labels and splits are from the manifest",
    "tfrecord": "TFRecord shards of tf.train.Examples",
    "tfds": "a data set prepared by TensorFlow Datasets",
    "webdataset": "WebDataset shards, tar files",
    "parquet": "Parquet shards",
}
_MOST_LABELS = 30


@dataclass(frozen=True)
class FirstLook:
    """A survey of the images, and the choices that follow from it."""

    survey: Survey
    config: Config
    """Complete configuration."""
    recipe: Recipe
    ineffective: tuple[str, ...]
    """Sentences about options of the user that change nothing."""
    classes: int
    listing: str = ""
    """File of the listing, which the driver of ingest takes over."""


def look(listing: Listing, config: Config) -> FirstLook:
    """Make the choices that follow from the images, and reject what would fail later.

    Raises:
        UserError: labels or splits cannot be trained on; or accelerator, weights, schema, code or
            the images to predict are missing.
    """
    from components.metrics.slices import choose_slices

    choose_slices(config.evaluation.slices, describe_columns(listing.columns()))
    if config.validation.schema:
        from components.validation.tfdv_files import read_schema

        read_schema(config.validation.schema)
    if config.predict.folder:
        find_sources([config.predict.folder])
    check_accelerator(config.training)
    require_formats(config.export.formats)
    if config.model.build_fn or config.augmentation.fn:
        code_digest(TRAINER.id, config.model.build_fn, config.augmentation.fn)
    check_labels(listing)
    survey = take_survey(listing, config.ingest)
    expected = expect_labels(listing)
    require_splits(expected, listing.root)
    _check_judgeable(listing, expected.get(TEST) or expected[EVAL], config.evaluation)
    return _resolve(config, listing, survey)


def _resolve(config: Config, listing: Listing, survey: Survey) -> FirstLook:
    """Choose weights, image size, network and recipe where the user has not."""
    given, images = config.given, expect_images(listing, TRAIN)
    config = dataclasses.replace(config, model=name_network(config.model))
    config, recipe = resolve(config, shorter_side=survey.shorter_side, images=images)
    check_imagenet(config.model)
    return FirstLook(
        survey,
        dataclasses.replace(config, given=given),  # The record of the run shows them.
        recipe,
        ineffective=tuple(find_ineffective(given, config, recipe)),
        classes=len(listing.labels()),
    )


def check_accelerator(training: TrainingConfig) -> None:
    """Raise `ConfigurationError` if this machine certainly lacks `training.accelerator`."""
    kind = training.accelerator
    missing = {
        # Of NVIDIA, of AMD, and in the Windows Subsystem for Linux.
        "gpu": not any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")))
        and "this machine has no GPU",
        "workers": "TF_CONFIG" not in os.environ and "TF_CONFIG is not set",
    }
    if reason := missing.get(kind):
        raise ConfigurationError(
            f"training.accelerator is {kind}, but {reason}: choose cpu or auto."
        )


def _check_judgeable(
    listing: Listing, labels: Mapping[str, float], config: EvaluationConfig
) -> None:
    """Raise `DataError` if no model can be blessed, however good, with so few images.

    `labels` is label → images of the split that the model is evaluated on.
    """
    evaluated = round(sum(labels.values()))
    others = len(listing.labels()) - 1
    # Wilson's interval of n right answers out of n starts at n / (n + Z²), and must lie above 1 /
    # labels, the accuracy of guessing among balanced labels.
    needed = math.floor(Z**2 / others) + 1
    if config.decide_by == "interval" and evaluated < needed:
        raise DataError(
            f"{listing.root} leaves {evaluated:,} image{'s' if evaluated != 1 else ''} to evaluate "
            f"the model on, but even if it is always right, {needed:,} are needed to show that it "
            f"is better than guessing: add images, or accept any measured accuracy with "
            f"--evaluation.decide_by value."
        )


def describe(listing: Listing) -> Iterator[tuple[str, str]]:
    """Yield rows of a title and a text: the layout, the labels, the splits and all warnings."""
    taken = f": {listing.taken}" if listing.taken else ""
    yield "Layout", f"{_LAYOUTS[listing.layout]}{taken}"
    if spans := sorted(listing.tally.spans):
        yield "Spans", f"{len(spans):,}, from {spans[0]} to {spans[-1]}"
    counts = sum(listing.labels_per_split().values(), collections.Counter())
    labels = [f"{label} {count:,}" for label, count in counts.most_common()]
    yield "Labels", name_some(labels, _MOST_LABELS)
    yield "Splits", ", ".join(_describe_splits(listing))
    if (given := listing.corrections).path:
        actions = collections.Counter(row.action for row in given.rows)
        texts = ", ".join(f"{count:,} {action}" for action, count in actions.items())
        yield "Decisions", f"{given.path}: {texts or 'none'}"
    for note in (*listing.notes, *find_look_alikes(listing)):
        yield "Note", note


def _describe_splits(listing: Listing) -> Iterator[str]:
    counts = listing.labels_per_split()
    about = "about " if None in counts else ""
    divided = listing.fractions if counts.pop(None, ()) else ()
    sources: dict[str, set[str]] = {split: set() for split in (*counts, *divided) if split}
    for file in listing.files if listing.layout == "split" and not listing.tally.spans else ():
        for split in listing.fractions if file.split is None else (file.split,):
            sources[split].add(file.path.split("/")[0])
    for split, names in sort_splits(sources).items():
        source = f" from {' and '.join(sorted(names))}" if names else ""
        yield f"{split} {about}{expect_images(listing, split):,}{source}"
