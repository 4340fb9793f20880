"""The command of every step: our entrypoint, told what the launcher does not repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.contract.configuration import to_json
from pipeline_def.kubeflow.compile.parameters import RunParameter, takes
from pipeline_def.kubeflow.compile.spec_document import SpecDocument, lookup_of
from pipeline_def.kubeflow.step_interface import COMMAND, RecipeChoice, Setting, StepInterface
from pipeline_def.steps import TRAINER

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
    recipes: RecipeChoice,
    direct: bool,
    beam_args: list[str],
) -> None:
    """Start our entrypoint for `component` and its lookup.

    Args:
        document: the specification.
        component: TFX's.
        parameters: of the run.
        pipeline: its name.
        recipes: what the run chooses from.
        direct: whether all steps use remote URIs instead of the launcher's copies. Steps that run
            Beam on other machines do in any case.
        beam_args: Beam's options, for the steps that run Beam.
    """
    beam = _runs_beam(component)
    common: dict[str, Any] = {"pipeline": pipeline, "inputs": _artifacts(component.inputs)}
    executor = StepInterface(
        executor=_path(component.executor_spec.executor_class),
        outputs=_artifacts(component.outputs),
        recipes=recipes if component.id == TRAINER.id else None,
        direct=direct or (beam and uses_other_machines(beam_args)),
        **common,
        **_values(document, component.id, parameters),
    )
    _write(document, component.id, executor, ["--", *beam_args] if beam else [])
    if (lookup := lookup_of(component.id)) in document.tasks:
        driver = component.driver_class
        seen = {name: common["inputs"][name] for name in driver.lookup_inputs}
        function = driver.lookup_function
        interface = StepInterface(
            lookup=f"{function.__module__}.{function.__qualname__}",
            direct=direct,
            **{**common, "inputs": seen},
            **_values(document, lookup, parameters),
        )
        _write(document, lookup, interface, [])


def _write(document: SpecDocument, task: str, interface: StepInterface, beam: list[str]) -> None:
    container = document.container(task)
    # KFP ignores TFX's hook before the cache; a lookup stands in for it.
    container.pop("lifecycle", None)
    container["command"] = list(COMMAND)
    own = ("--step", task, "--interface", to_json(interface))
    container["args"] = [*own, "--executor_input", "{{$}}", *beam]


def _path(kind: Any) -> str:
    from tfx.utils import name_utils

    return str(name_utils.get_full_name(kind))


def _artifacts(channels: Mapping[str, Any]) -> dict[str, str]:
    return {key: _path(channels[key].type) for key in channels}


def _values(document: SpecDocument, task: str, parameters: list[RunParameter]) -> dict[str, Any]:
    """Say which execution properties are integers, and which are decided by the run."""
    own = {parameter.name for parameter in parameters}
    definitions = document.definitions(task, "inputDefinitions", "parameters")
    integers = [
        name
        for name, definition in sorted(definitions.items())
        if definition["parameterType"] == "NUMBER_INTEGER" and name not in own
    ]
    settings = [
        Setting(parameter.name, parameter.place, unset=parameter.unset)
        for parameter in parameters
        if parameter.place and takes(document, task, parameter)
    ]
    return {"integers": integers, "settings": settings}


def _runs_beam(component: Any) -> bool:
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    return issubclass(component.executor_spec.executor_class, BaseBeamExecutor)
