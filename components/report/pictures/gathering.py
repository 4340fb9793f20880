"""All pictures of the report, and how many of them there is room for; the door to this package."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from components.contract.properties import FOLDER_PROPERTY, PropertiesLike
from components.evaluation.metrics.classification_metrics import ModelMetrics
from components.evaluation.metrics.predictions import Evaluated
from components.report.facts import MATRIX_CLASSES, ClassSample
from components.report.pictures.answered_images import Explain, choose, show
from components.report.pictures.budget import MOST_BYTES, count_bytes, keep_within
from components.report.pictures.class_samples import sample_classes
from components.report.pictures.heat_maps import explain_images
from components.report.pictures.source_pictures import show_rejects, show_same_images

_SAMPLED_CLASSES, _SAMPLES_EACH = 24, 4
_REJECTS, _SAME_IMAGES, _MISTAKES, _IMAGES = 40, 40, 48, 1000


def gather_pictures(
    given: Mapping[str, PropertiesLike],
    evaluated: Evaluated,
    metrics: ModelMetrics,
    *,
    split: str,
    config: Mapping[str, Any],
    preview_fn: str,
    model: str = "",
) -> dict[str, Any]:
    """Return the fields of `ReportFacts` that hold pictures.

    Args:
        given: the inputs of ImageReport.
        evaluated: the answers.
        metrics: of the new model.
        split: that was evaluated.
        config: that the model was trained with.
        preview_fn: dotted path of what shows images as the model sees them.
        model: folder of the SavedModel, which draws heat maps; "": there are none.
    """
    examples_uri, rejects_uri = given["examples"].uri, given["rejects"].uri
    root = given["examples"].get_string_custom_property(FOLDER_PROPERTY)
    samples = _sample(given["transformed_examples"].uri, evaluated, metrics, config, preview_fn)
    rejects = show_rejects(rejects_uri, root, most=_REJECTS)
    same_images = show_same_images(rejects_uri, root, most=_SAME_IMAGES)
    shown = {metrics.labels[column] for column in metrics.most_mistaken(MATRIX_CLASSES)}
    chosen = choose(evaluated, mistakes=_MISTAKES, images=_IMAGES, shown=shown)
    mistakes, images = show(evaluated, chosen, examples_uri, split, _explain(model))
    left = MOST_BYTES - sum(map(_bytes_of_sample, samples))
    left -= count_bytes(reject.picture for reject in rejects)
    left -= count_bytes(same.picture for same in same_images)
    mistakes = keep_within(mistakes, left)
    left -= count_bytes(picture for one in mistakes for picture in (one.picture, one.heat_map))
    return {
        "samples": samples,
        "rejects": rejects,
        "same_images": same_images,
        "mistakes": mistakes,
        "images": keep_within(images, left),
    }


def _explain(model: str) -> Explain:
    """Return what draws heat maps, with the model of the run if the report was given it."""
    return functools.partial(explain_images, model) if model else lambda files: {}


def _bytes_of_sample(sample: ClassSample) -> int:
    return count_bytes(sample.seen if sample.unchanged else (*sample.seen, *sample.augmented))


def _sample(
    transformed_uri: str,
    evaluated: Evaluated,
    metrics: ModelMetrics,
    config: Mapping[str, Any],
    preview_fn: str,
) -> tuple[ClassSample, ...]:
    """Show training images of the classes with most mistakes."""
    module, _, name = preview_fn.rpartition(".")
    preview = getattr(importlib.import_module(module), name)
    return sample_classes(
        transformed_uri,
        evaluated.candidate.labels,
        shown=[metrics.labels[column] for column in metrics.most_mistaken(_SAMPLED_CLASSES)],
        each=_SAMPLES_EACH,
        preview_images=lambda encoded: preview(encoded, config),
    )
