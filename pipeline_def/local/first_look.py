"""Checks before a run, which `run` and `inspect` share, and the choices that follow from images."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from components.contract.example import TRAIN
from components.ingest.listing import Listing, check_labels
from components.ingest.stratification import check_splits
from components.ingest.survey import Survey, take_survey
from pipeline_def.code_digest import code_digest
from pipeline_def.config.config import Config
from pipeline_def.config.recipes import Recipe, resolve
from pipeline_def.model.preflight import check_imagenet, check_memory
from pipeline_def.model.weights_file import name_network
from pipeline_def.steps import TRAINER


@dataclass(frozen=True)
class FirstLook:
    """A survey of the images, and the choices that follow from it."""

    survey: Survey
    config: Config
    """Complete configuration."""
    recipe: Recipe


def look(listing: Listing, config: Config) -> FirstLook:
    """Make the choices that follow from the images, and reject what would fail later.

    Raises:
        UserError: labels or splits cannot be trained on; weights, schema or code cannot be loaded;
            or the network does not fit in memory.
    """
    if config.validation.schema:
        from components.validation.curated_schema import read_schema

        read_schema(config.validation.schema)
    code_digest(TRAINER.id, config.model.build_fn)
    config = dataclasses.replace(config, model=name_network(config.model))
    check_labels(listing)
    survey = take_survey(listing, config.ingest)
    check_splits(listing, config.ingest)
    images = listing.expected(TRAIN)
    config, recipe = resolve(config, shorter_side=survey.shorter_side, images=images)
    check_imagenet(config.model)
    check_memory(config, images=images)
    return FirstLook(survey, config, recipe)
