"""BaselineFinder: the model in use, which the candidate has to be compared with.

TFX's own Resolver does not run on Kubeflow Pipelines, and after an unchanged run it would resolve
the candidate itself, so that nothing downstream could ever come from the cache. This component
looks into the folder that Pusher writes to, and leaves the candidate out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.utils import io_utils, path_utils

from components.contract.artifacts import FOUND_PROPERTY, VERSION_PROPERTY
from components.contract.lookup_driver import LookupDriver
from components.storage.tfx_filesystem import register_object_stores

# The execution property that the driver resolves: the folder of the baseline, or "".
FOUND_KEY = "found_baseline"


def find_baseline(pushed_models: str, candidate: str) -> str:
    """Return the newest version in `pushed_models` that is not `candidate`, or "".

    Args:
        pushed_models: folder whose subfolders are versions, named by number.
        candidate: folder of the SavedModel to be evaluated.
    """
    register_object_stores()
    if not fileio.isdir(pushed_models):
        return ""
    # TensorFlow ends the names of remote folders with a slash.
    names = [name.rstrip("/") for name in fileio.listdir(pushed_models)]
    same = _model_digest(candidate)
    for name in sorted((name for name in names if name.isdigit()), key=int, reverse=True):
        version = os.path.join(pushed_models, name)
        # Pusher copies saved_model.pb last, so a version without it is not whole.
        whole = fileio.exists(os.path.join(version, "saved_model.pb"))
        if whole and _model_digest(version) != same:
            return version
    return ""


def _model_digest(saved_model: str) -> str:
    """Digest the graph and the checksums of the weights, which the variables' index holds."""
    digest = hashlib.sha256()
    for name in ("saved_model.pb", os.path.join("variables", "variables.index")):
        with fileio.open(os.path.join(saved_model, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def _serving_path(model: types.Artifact) -> str:
    return str(path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model)))


class Driver(LookupDriver):
    """Finds the baseline before the cache is looked up, so that a new one makes a new key."""

    LOOKED_UP_FROM = ("pushed_models",)

    @staticmethod
    def look_up(
        input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Find the folder of the baseline."""
        candidate = artifact_utils.get_single_instance(input_dict["model"])
        return {
            FOUND_KEY: find_baseline(exec_properties["pushed_models"], _serving_path(candidate))
        }


class Executor(base_executor.BaseExecutor):
    """Copies the baseline into the output artifact, which stays empty when there is none."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Copy the model that the driver found; look for it here where no driver ran."""
        baseline = artifact_utils.get_single_instance(output_dict["baseline"])
        found = exec_properties.get(FOUND_KEY)
        if found is None:
            found = Driver.look_up(input_dict, exec_properties)[FOUND_KEY]
        if found:
            register_object_stores()
            io_utils.copy_dir(found, path_utils.serving_model_dir(baseline.uri))
            baseline.set_string_custom_property(VERSION_PROPERTY, os.path.basename(found))
        baseline.set_int_custom_property(FOUND_PROPERTY, int(bool(found)))


class BaselineFinderSpec(component_spec.ComponentSpec):
    """Candidate in, baseline out."""

    PARAMETERS = {
        "pushed_models": component_spec.ExecutionParameter(type=str),
        FOUND_KEY: component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS = {"model": component_spec.ChannelParameter(type=standard_artifacts.Model)}
    OUTPUTS = {"baseline": component_spec.ChannelParameter(type=standard_artifacts.Model)}


class BaselineFinder(base_component.BaseComponent):
    """Finds the last pushed model other than the candidate.

    Outputs:
        baseline: `Model`, a copy of it; empty, with the property `found` at 0, on a first run.
    """

    SPEC_CLASS = BaselineFinderSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(self, *, model: types.BaseChannel, pushed_models: str) -> None:
        """Look in `pushed_models`, the folder that Pusher writes versions to."""
        spec = BaselineFinderSpec(
            model=model,
            pushed_models=pushed_models,
            baseline=types.Channel(type=standard_artifacts.Model),
        )
        super().__init__(spec=spec)
