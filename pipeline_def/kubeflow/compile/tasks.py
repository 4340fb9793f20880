"""Describes what Kubeflow runs for each component: a step, and a lookup before it.

KFP consults its cache before any code of ours runs, and a folder keeps its name when its images
change. A lookup finds what TFX's driver would; the result is a parameter of the step after it and
so part of the cache key.
"""

import copy
from collections.abc import Mapping
from typing import Any

from components.validation.lookup import EXAMPLES_KEY
from pipeline_def.kubeflow.specification import Spec, Specification, lookup_of
from pipeline_def.kubeflow.step_interface import (
    LEARNERS,
    RESOLVED_PARAMETER,
    RUN_PARAMETERS,
    Recipes,
    StepInterface,
)
from pipeline_def.steps import BASELINE_FINDER, EXAMPLE_GEN, EXAMPLE_VALIDATOR, TRAINER

# Lookup → its parameter → the step whose lookup has found the value.
_FOUND_BEFORE = {
    EXAMPLE_VALIDATOR.id: {EXAMPLES_KEY: EXAMPLE_GEN.id},
    BASELINE_FINDER.id: {f"{step}_resolved": step for step in (EXAMPLE_GEN.id, *LEARNERS)},
}


def add_lookup(document: Specification, component: Any) -> None:
    """Add a task that is never cached before `component`, if its driver looks anything up.

    All lookups run before any step, so they read no artifacts.
    """
    driver = component.driver_class
    if driver.__module__.startswith("tfx.dsl."):
        return
    task, name = component.id, lookup_of(component.id)
    # Nothing is written there: its URI tells the lookup where the folders of pipeline and run are.
    place = {"artifactType": {"instanceSchema": "title: system.Artifact\ntype: object\n"}}
    document.components[name] = {
        "outputDefinitions": {
            "parameters": {RESOLVED_PARAMETER: {"parameterType": "STRING"}},
            "artifacts": {"place": place},
        }
    }
    image = document.container(task)["image"]
    document.tasks[name] = {"componentRef": {"name": name}}
    document.components[name]["executorLabel"] = name
    document.executors[name] = {"container": {"image": image}}
    definitions = document.definitions(task, "inputDefinitions", "parameters")
    for key in driver.lookup_properties:
        source = copy.deepcopy(document.sources(task, "parameters")[key])
        document.bind(name, key, definitions[key]["parameterType"], source)
    for key, step in _FOUND_BEFORE.get(task, {}).items():
        if lookup_of(step) in document.tasks:
            document.bind(name, key, "STRING", _resolved_by(lookup_of(step)))
    document.bind(task, RESOLVED_PARAMETER, "STRING", _resolved_by(name))


def _resolved_by(lookup: str) -> Spec:
    output = {"producerTask": lookup, "outputParameterKey": RESOLVED_PARAMETER}
    return {"taskOutputParameter": output}


def describe(
    document: Specification, component: Any, *, recipes: Recipes, direct: bool, workers: int
) -> dict[str, StepInterface]:
    """Return the interfaces of `component` and its lookup, by task.

    With `direct`, all steps use remote URIs instead of the launcher's copies.
    """
    task, lookup = component.id, lookup_of(component.id)
    executor = StepInterface(
        step=task,
        executor=_dotted_path(component.executor_spec.executor_class),
        pipeline=document.spec["pipelineInfo"]["name"],
        inputs=_artifact_types(component.inputs),
        outputs=_artifact_types(component.outputs),
        integers=_integers(document, task),
        recipes=recipes if task in LEARNERS else {},
        direct=direct,
        workers=workers if task == TRAINER.id else 1,
    )
    if lookup not in document.tasks:
        return {task: executor}
    function = component.driver_class.lookup_function
    found = StepInterface(
        step=task,
        lookup=f"{function.__module__}.{function.__qualname__}",
        pipeline=executor.pipeline,
        integers=_integers(document, lookup),
        direct=direct,
    )
    return {task: executor, lookup: found}


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


def runs_beam(component: Any) -> bool:
    """Return whether the executor of a component runs Apache Beam."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    return issubclass(component.executor_spec.executor_class, BaseBeamExecutor)
