"""The command of every step: our entrypoint, told what the launcher does not repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline_def.kubeflow.compile.parameters import RunParameter, takes
from pipeline_def.kubeflow.compile.spec_document import SpecDocument, lookup_of

_COMMAND = ("python", "-m", "pipeline_def.kubeflow.step.entrypoint")

# Beam runners that work in the step's own process, where the launcher's copies are.
_LOCAL_RUNNERS = {"FnApiRunner", "DirectRunner", "BundleBasedDirectRunner", "PrismRunner"}


def uses_other_machines(beam_args: list[str]) -> bool:
    """Say whether Beam's work is done where a step's own disk cannot be seen."""
    runners = [text.partition("=")[2] for text in beam_args if text.startswith("--runner=")]
    return bool(runners) and runners[-1] not in _LOCAL_RUNNERS


def replace_command(
    document: SpecDocument,
    component: Any,
    parameters: list[RunParameter],
    *,
    pipeline: str,
    direct: bool,
    beam_args: list[str],
) -> None:
    """Start our entrypoint for `component` and its lookup.

    Args:
        document: the specification.
        component: TFX's.
        parameters: of the run.
        pipeline: its name.
        direct: whether all steps use remote URIs instead of the launcher's copies. Steps that run
            Beam on other machines do in any case.
        beam_args: Beam's options, for the steps that run Beam.
    """
    task, lookup = component.id, lookup_of(component.id)
    beam = _runs_beam(component)
    more = ["--direct"] if direct or (beam and uses_other_machines(beam_args)) else []
    _write(
        document,
        task,
        [
            *("--executor", _path(component.executor_spec.executor_class), "--pipeline", pipeline),
            *_artifacts("--input", component.inputs),
            *_artifacts("--output", component.outputs),
            *_values(document, task, parameters),
            *more,
        ],
        ["--", *beam_args] if beam else [],
    )
    if lookup in document.tasks:
        _write(
            document,
            lookup,
            [
                *("--lookup", _path(component.driver_class), "--pipeline", pipeline),
                *_artifacts("--input", component.inputs),
                *_values(document, lookup, parameters),
                *(["--direct"] if direct else []),
            ],
            [],
        )


def _write(document: SpecDocument, task: str, arguments: list[str], beam: list[str]) -> None:
    container = document.container(task)
    # KFP ignores TFX's hook before the cache; a lookup stands in for it.
    container.pop("lifecycle", None)
    container["command"] = list(_COMMAND)
    container["args"] = ["--step", task, *arguments, "--executor_input", "{{$}}", *beam]


def _path(kind: Any) -> str:
    from tfx.utils import name_utils

    return str(name_utils.get_full_name(kind))


def _artifacts(flag: str, channels: Mapping[str, Any]) -> list[str]:
    pairs = [(flag, f"{key}={_path(channels[key].type)}") for key in sorted(channels)]
    return [text for pair in pairs for text in pair]


def _values(document: SpecDocument, task: str, parameters: list[RunParameter]) -> list[str]:
    """Say which execution properties are integers, and which are decided by the run."""
    own = {parameter.name for parameter in parameters}
    integers = [
        name
        for name, definition in sorted(document.definitions(task).items())
        if definition["parameterType"] == "NUMBER_INTEGER" and name not in own
    ]
    settings = [
        str(parameter.setting)
        for parameter in parameters
        if parameter.setting and takes(document, task, parameter)
    ]
    return [
        *(text for name in integers for text in ("--integer", name)),
        *(text for setting in settings for text in ("--set", setting)),
    ]


def _runs_beam(component: Any) -> bool:
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    return issubclass(component.executor_spec.executor_class, BaseBeamExecutor)
