"""Makes each component the tasks that Kubeflow runs: our entrypoint, and a lookup before it.

KFP consults its cache before any code of ours runs, and a folder keeps its name when its images
change. A lookup finds what TFX's driver would; the result is a parameter of the step after it and
so part of the cache key.
"""

import json
from collections.abc import Mapping
from typing import Any

from components.contract.configuration import to_json
from components.validation.lookup import EXAMPLES_KEY
from pipeline_def.kubeflow.specification import Spec, Specification, executor_label, lookup_of
from pipeline_def.kubeflow.step_interface import (
    COMMAND,
    LEARNERS,
    RESOLVED_PARAMETER,
    RUN_PARAMETERS,
    Recipes,
    StepInterface,
    WorkerGroup,
)
from pipeline_def.steps import EXAMPLE_GEN, EXAMPLE_VALIDATOR

# Beam runners that work in the step's own process, where the launcher's copies are.
_LOCAL_RUNNERS = {"FnApiRunner", "DirectRunner", "BundleBasedDirectRunner", "PrismRunner"}


def uses_other_machines(beam_args: list[str]) -> bool:
    """Return whether Beam runs where a step's own disk cannot be seen."""
    runners = [text.partition("=")[2] for text in beam_args if text.startswith("--runner=")]
    return bool(runners) and runners[-1] not in _LOCAL_RUNNERS


def add_lookup(document: Specification, component: Any) -> None:
    """Add a task that is never cached before `component`, if its driver looks anything up."""
    driver = component.driver_class
    if driver.__module__.startswith("tfx.dsl."):
        return
    task, name = component.id, lookup_of(component.id)
    step, label = document.tasks[task], executor_label(name)
    inputs = _copy_inputs(document.components[task].get("inputDefinitions", {}), driver)
    # Nothing is written there: its URI tells the lookup where the folders of pipeline and run are.
    place = {"artifactType": {"instanceSchema": "title: system.Artifact\ntype: object\n"}}
    outputs: Spec = {
        "parameters": {RESOLVED_PARAMETER: {"parameterType": "STRING"}},
        "artifacts": {"place": place},
    }
    document.components[name] = {
        "executorLabel": label,
        "inputDefinitions": inputs,
        "outputDefinitions": outputs,
    }
    document.executors[label] = {"container": {"image": document.container(task)["image"]}}
    sources = _copy_inputs(step.get("inputs", {}), driver)
    if early := component.id == EXAMPLE_VALIDATOR.id:
        inputs["artifacts"], sources["artifacts"] = {}, {}
    # It waits only for its own inputs, so it may run beside tasks that only the step waits for.
    before = sorted(
        {s["taskOutputArtifact"]["producerTask"] for s in sources["artifacts"].values()}
    )
    document.tasks[name] = {
        "componentRef": {"name": name},
        "taskInfo": {"name": name},
        "inputs": sources,
        **({"dependentTasks": before} if before else {}),
    }
    if early:
        # The span and the key of the examples, all that it needs, are known before any step runs.
        document.bind(name, EXAMPLES_KEY, "STRING", _resolved_by(lookup_of(EXAMPLE_GEN.id)))
    step["dependentTasks"] = sorted([*step.get("dependentTasks", []), name])
    document.bind(task, RESOLVED_PARAMETER, "STRING", _resolved_by(name))


def _resolved_by(lookup: str) -> Spec:
    output = {"producerTask": lookup, "outputParameterKey": RESOLVED_PARAMETER}
    return {"taskOutputParameter": output}


def _copy_inputs(inputs: Spec, driver: Any) -> Spec:
    """Copy the artifacts and properties that the lookup of `driver` reads."""
    copied: Spec = json.loads(json.dumps(inputs))
    wanted = {"artifacts": driver.lookup_inputs, "parameters": driver.lookup_properties}
    return {kind: {name: copied[kind][name] for name in names} for kind, names in wanted.items()}


def replace_commands(
    document: Specification,
    component: Any,
    *,
    recipes: Recipes,
    direct: bool,
    beam_args: list[str],
    workers: WorkerGroup | None,
) -> None:
    """Start our entrypoint for `component` and its lookup.

    With `direct`, all steps use remote URIs instead of the launcher's copies; steps that run Beam
    on other machines always do.
    """
    beam, types = _runs_beam(component), _artifact_types(component.inputs)
    executor = StepInterface(
        step=component.id,
        executor=_dotted_path(component.executor_spec.executor_class),
        pipeline=document.spec["pipelineInfo"]["name"],
        inputs=types,
        outputs=_artifact_types(component.outputs),
        integers=_integers(document, component.id),
        recipes=recipes if component.id in LEARNERS else {},
        direct=direct or (beam and uses_other_machines(beam_args)),
        workers=workers,
    )
    write_command(document, component.id, executor, ["--", *beam_args] if beam else [])
    if (lookup := lookup_of(component.id)) in document.tasks:
        driver = component.driver_class
        function = driver.lookup_function
        interface = StepInterface(
            step=component.id,
            lookup=f"{function.__module__}.{function.__qualname__}",
            pipeline=executor.pipeline,
            inputs={name: types[name] for name in document.sources(lookup, "artifacts")},
            integers=_integers(document, lookup),
            direct=direct,
        )
        write_command(document, lookup, interface, [])


def write_command(
    document: Specification, task: str, interface: StepInterface, beam: list[str]
) -> None:
    """Start our entrypoint for a task; `beam` are the arguments after the launcher's."""
    container = document.container(task)
    # KFP ignores TFX's hook before the cache; a lookup replaces it.
    container.pop("lifecycle", None)
    container["command"] = list(COMMAND)
    given = ("--step", task, "--interface", to_json(interface))
    container["args"] = [*given, "--executor_input", "{{$}}", *beam]


def _dotted_path(kind: Any) -> str:
    from tfx.utils import name_utils

    return str(name_utils.get_full_name(kind))


def _artifact_types(channels: Mapping[str, Any]) -> dict[str, str]:
    return {key: _dotted_path(channels[key].type) for key in channels}


def _integers(document: Specification, task: str) -> list[str]:
    """Return the execution properties that are integers."""
    of_the_run = {parameter.name for parameter in RUN_PARAMETERS}
    definitions = document.definitions(task, "inputDefinitions", "parameters")
    integers = {n for n, row in definitions.items() if row["parameterType"] == "NUMBER_INTEGER"}
    return sorted(integers - of_the_run)


def _runs_beam(component: Any) -> bool:
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    return issubclass(component.executor_spec.executor_class, BaseBeamExecutor)
