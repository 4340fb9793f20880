"""BaselineFinder: finds the model in use, which the candidate has to be compared with.

TFX's own Resolver does not run on Kubeflow Pipelines, and after an unchanged run it would resolve
the candidate itself, so that nothing downstream could ever come from the cache. This component
looks into the folder that Pusher writes to, and leaves the candidate out.
"""

# No `from __future__ import annotations` here: TFX reads the annotations as objects.
import os
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import io_utils, path_utils

from components.contract.artifacts import FOUND_PROPERTY, VERSION_PROPERTY
from components.contract.lookup_driver import LookupDriver
from components.storage.saved_model import model_digest, whole_versions
from components.storage.tfx_filesystem import register_object_stores

# The execution property that the driver resolves: the folder of the baseline, or "".
FOUND_KEY = "found_baseline"


def find_baseline(pushed_models: str, candidate: str) -> str:
    """Return the newest version in `pushed_models` that is not `candidate`, or "".

    Args:
        pushed_models: folder whose subfolders are versions, named by number.
        candidate: folder of the SavedModel to be evaluated.
    """
    versions = list(whole_versions(pushed_models)) if pushed_models else []
    same = model_digest(candidate) if versions else ""
    return next((version for version in versions if model_digest(version) != same), "")


def _find(pushed_models: str, model: types.Artifact) -> str:
    old = path_utils.is_old_model_artifact(model)
    return find_baseline(pushed_models, path_utils.serving_model_path(model.uri, old))


class Driver(LookupDriver):
    """Finds the baseline before the cache is looked up, so that a new one makes a new key."""

    LOOKED_UP_FROM = ("pushed_models",)
    LOOKED_AT = ("model",)

    @staticmethod
    def look_up(
        input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Find the folder of the baseline."""
        candidate = artifact_utils.get_single_instance(input_dict["model"])
        # TFX does not pass on what was left at its default.
        return {FOUND_KEY: _find(exec_properties.get("pushed_models", ""), candidate)}


@component
def BaselineFinder(
    model: InputArtifact[standard_artifacts.Model],
    baseline: OutputArtifact[standard_artifacts.Model],
    pushed_models: Parameter[str] = "",
    found_baseline: Parameter[str] = None,
) -> None:
    """Copy the last pushed model other than the candidate.

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
        baseline: the copy; empty, with the property `found` at 0, on a first run.
        pushed_models: folder that Pusher writes versions to. Empty: there is no model in use.
        found_baseline: what the driver found; it is looked for here where no driver ran.
    """
    found = _find(pushed_models, model) if found_baseline is None else found_baseline
    if found:
        register_object_stores()
        io_utils.copy_dir(found, path_utils.serving_model_dir(baseline.uri))
        baseline.set_string_custom_property(VERSION_PROPERTY, os.path.basename(found))
    baseline.set_int_custom_property(FOUND_PROPERTY, int(bool(found)))


BaselineFinder.DRIVER_CLASS = Driver
# TFX leaves it with the function.
BaselineFinder.__doc__ = BaselineFinder.test_call.__doc__
