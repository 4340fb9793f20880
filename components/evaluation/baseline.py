"""BaselineFinder: finds the model in use, which the candidate has to be compared with.

TFX's own Resolver does not run on Kubeflow Pipelines, and after an unchanged run it would resolve
the candidate itself, so that nothing downstream could ever come from the cache. This component
looks into the folder that Pusher writes to, and leaves the candidate out.
"""

# No `from __future__ import annotations` here: TFX reads the annotations as objects.
import os

from tfx import types
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts
from tfx.utils import io_utils, path_utils

from components.contract.lookup_driver import LookupDriver
from components.contract.properties import FOUND_PROPERTY, VERSION_PROPERTY
from components.evaluation.baseline_lookup import find_baseline, look_up
from components.storage.tfx_filesystem import register_object_stores, write_text

_NOTE = "README.txt"
_NOTHING_FOUND = "No other model has been pushed, so there is no baseline to compare with.\n"


def _find(pushed_models: str, model: types.Artifact) -> str:
    old = path_utils.is_old_model_artifact(model)
    return find_baseline(pushed_models, path_utils.serving_model_path(model.uri, old))


class Driver(LookupDriver):
    """Finds the baseline before the cache is looked up, so that a new one makes a new key."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("pushed_models",)
    lookup_inputs = ("model",)


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
        baseline: the copy; on a first run a note that says so, with the property `found` at 0.
        pushed_models: folder that Pusher writes versions to. Empty: there is no model in use.
        found_baseline: what the driver found; it is looked for here where no driver ran.
    """
    found = _find(pushed_models, model) if found_baseline is None else found_baseline
    if found:
        register_object_stores()
        io_utils.copy_dir(found, path_utils.serving_model_dir(baseline.uri))
        baseline.set_string_custom_property(VERSION_PROPERTY, os.path.basename(found))
    else:
        # An artifact without any object is an error in Kubeflow's interface, which opens each.
        write_text(_NOTHING_FOUND, os.path.join(baseline.uri, _NOTE), _NOTE)
    baseline.set_int_custom_property(FOUND_PROPERTY, int(bool(found)))


BaselineFinder.DRIVER_CLASS = Driver
# TFX leaves it with the function.
BaselineFinder.__doc__ = BaselineFinder.test_call.__doc__
