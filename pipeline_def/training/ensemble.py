"""The ensemble that ImageTuner has found, as one classifier that averages the probabilities."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tf_keras
from scipy.special import softmax

from components.host.progress import naming_fold
from pipeline_def.config.recipes import Values, apply_values
from pipeline_def.model.networks import make_plain, precision
from pipeline_def.serving.signatures import LEAST_PROBABILITY, Classifier
from pipeline_def.training.cross_validation.choice import train
from pipeline_def.training.cross_validation.folds import Validated
from pipeline_def.training.tuned import MEMBERS

if TYPE_CHECKING:
    from pipeline_def.training.preparation import Preparation

_LOGGER = logging.getLogger(__name__)

Member = tuple[Classifier, Validated | None]
"""A classifier of a single network, and the results of its folds, if it has some."""


def join_members(
    classifier: Classifier,
    validated: Validated | None,
    search: dict[str, Any],
    make_member: Callable[[int, Values], Member],
) -> Member:
    """Return the ensemble of a search, and note it there; the chosen trial if it is no better.

    Args:
        classifier: of the chosen trial.
        validated: its folds.
        search: facts of the search.
        make_member: returns another member, from the number of its trial and its values of all
            options of the search.
    """
    found = search.get("ensemble")
    if not found or not found["better"]:
        reason = f"{found['text']}, which may be chance" if found else "No other trial improves it"
        alone = f"{reason}: the chosen trial is exported alone."
        _LOGGER.warning("export.ensemble: %s", alone)
        search["text"] += f" {alone}"
        return classifier, validated
    first, *others = found["members"]
    total = sum(one["count"] for one in found["members"])
    members = [(make_member(one["trial"], one["values"]), one["count"] / total) for one in others]
    if validated:
        parts = [(validated, first["count"] / total)]
        parts += [(folds, weight) for (_, folds), weight in members if folds]
        mean = sum(weight * softmax(folds.logits, axis=1) for folds, weight in parts)
        joined = np.log(np.maximum(mean, LEAST_PROBABILITY))
        validated = dataclasses.replace(validated, joined=joined)
    found["exported"] = True
    search["text"] += f" {found['text']}; it is exported."
    further = tuple((member, weight) for (member, _), weight in members)
    return dataclasses.replace(classifier, others=further), validated


def train_member(
    prepared: Preparation,
    strategy: tf.distribute.Strategy,
    number: int,
    values: Values,
    *,
    log_dir: str,
    checkpoint_dir: str,
) -> Member:
    """Train a member as far as its checkpoints do not have it: with folds, on all images."""
    config = apply_values(prepared.data.config, values)
    data = dataclasses.replace(prepared.data, config=config)
    data = data.of(data.train, data.evaluation, strategy.num_replicas_in_sync)
    place = os.path.join(MEMBERS, str(number))
    logs, saved = (os.path.join(folder, place) for folder in (log_dir, checkpoint_dir))

    def build() -> tf_keras.Model:
        return prepared.build(config.model)

    with strategy.scope(), precision(config.training.precision):
        model = build()
    with naming_fold(f"trial {number}:"):
        _, validated = train(model, data, log_dir=logs, checkpoint_dir=saved)
    model = make_plain(model, build, config.training.precision)
    return Classifier(model, config.model.views), validated
