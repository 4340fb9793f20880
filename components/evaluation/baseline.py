"""BaselineFinder: finds the current model, the baseline of the evaluation.

TFX's Resolver does not run on Kubeflow Pipelines, and after an unchanged run it would resolve the
candidate itself, so nothing downstream could be cached. This component looks in the folder that
Pusher writes to, and ignores the candidate.
"""

import os

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts
from tfx.utils import path_utils

from components.contract.artifact_files import write_text
from components.contract.properties import FOUND_PROPERTY, VERSION_PROPERTY
from components.contract.tfx_classes import LookupDriver
from components.evaluation.baseline_lookup import find_baseline, look_up
from components.storage.transfer import copy_folder

_NOTE = "README.txt"
_NOTHING_FOUND = "No other model has been pushed, so there is no baseline to compare with.\n"


class Driver(LookupDriver):
    """Finds the baseline before the cache lookup, so that a new baseline changes the cache key."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("pushed_models",)
    lookup_inputs = ("model",)


@component
def BaselineFinder(
    model: InputArtifact[standard_artifacts.Model],
    baseline: OutputArtifact[standard_artifacts.Model],
    pushed_models: Parameter[str] = "",
    found_baseline: Parameter[str] = None,
    training_key: Parameter[str] = None,
    baseline_digest: Parameter[str] = None,
) -> None:
    """Copy the last pushed model that is not the candidate.

    Example:
        >>> from components import BaselineFinder
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.types.standard_artifacts import Model
        >>> candidate = Importer(source_uri="trained/1", artifact_type=Model)
        >>> finder = BaselineFinder(model=candidate.outputs["result"], pushed_models="pushed")
        >>> sorted(finder.outputs)
        ['baseline']

    Args:
        model: the candidate.
        baseline: the copy; on a first run a note instead, with the property `found` set to 0.
        pushed_models: folder of Pusher's versions. Empty: there is no current model.
        found_baseline: result of the driver; None if no driver ran.
        training_key: key of what decides on the candidate, if the driver ran before there was one.
        baseline_digest: digest of the baseline that the driver found, for the cache key.
    """
    folder, candidate = found_baseline, path_utils.serving_model_path(model.uri)
    if folder is None or training_key:
        # Another run may have pushed a model while this one trained.
        folder = find_baseline(pushed_models, candidate)
    if folder:
        copy_folder(folder, path_utils.serving_model_dir(baseline.uri))
        baseline.set_string_custom_property(VERSION_PROPERTY, os.path.basename(folder))
    else:
        # Kubeflow's interface opens every artifact, and an empty one is an error.
        write_text(_NOTHING_FOUND, os.path.join(baseline.uri, _NOTE), _NOTE)
    baseline.set_int_custom_property(FOUND_PROPERTY, int(bool(folder)))


BaselineFinder.DRIVER_CLASS = Driver
# TFX leaves the docstring with the function.
BaselineFinder.__doc__ = BaselineFinder.test_call.__doc__
