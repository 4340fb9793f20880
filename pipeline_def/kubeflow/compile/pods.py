"""Writes the tasks of a specification: a pod for each, which runs one part or several.

Parts of one pod run one after the other. Their artifacts keep their names; their parameters get the
name of their step as a prefix. `PODS` lists the groups.
"""

import dataclasses
from collections.abc import Iterable, Iterator

from components.contract.configuration import to_json
from pipeline_def.kubeflow.compile.parts import Part, producers
from pipeline_def.kubeflow.specification import (
    LOOKUPS,
    PODS,
    Spec,
    Specification,
    executor_label,
    pod_of,
)
from pipeline_def.kubeflow.step_interface import (
    COMMAND,
    LEARNERS,
    RESOLVED_PARAMETER,
    StepInterface,
)
from pipeline_def.steps import ANOMALY_GATE

_OUTPUT_KEYS = {"artifacts": "outputArtifactKey", "parameters": "outputParameterKey"}


def write_pods(document: Specification, parts: Iterable[Part], image: str, *, cache: bool) -> None:
    """Write the task, the component and the executor of every pod."""
    groups: dict[str, list[Part]] = {}
    for part in parts:
        name = LOOKUPS if part.interface.lookup else pod_of(part.step)
        groups.setdefault(name, []).append(part)
    for name, group in groups.items():
        inputs, component, interface = _write_pod(name, group)
        # Training, not Transform, waits for the gate, so that both sides run at once.
        waits = {pod_of(ANOMALY_GATE.id)} if name in LEARNERS else set[str]()
        waits = waits.union(*map(producers, group)) - {name}
        document.tasks[name] = {
            "taskInfo": {"name": name},
            "componentRef": {"name": name},
            "inputs": inputs,
            **({"dependentTasks": sorted(waits)} if waits else {}),
            **({"cachingOptions": {"enableCache": True}} if cache and name != LOOKUPS else {}),
        }
        label = executor_label(name)
        document.components[name] = {"executorLabel": label, **component}
        given = ("--step", name, "--interface", to_json(interface))
        container = {
            "image": image,
            "command": list(COMMAND),
            "args": [*given, "--executor_input", "{{$}}"],
        }
        document.executors[label] = {"container": container}


def _write_pod(name: str, parts: list[Part]) -> tuple[Spec, Spec, StepInterface]:
    """Return the inputs of a task, the definitions of its component, and its interface."""
    inputs: Spec = {}
    component: Spec = {}
    shares = name in (*PODS, LOOKUPS)

    def define(side: str, kind: str, key: str, definition: Spec) -> None:
        component.setdefault(side, {}).setdefault(kind, {})[key] = definition

    interfaces = []
    for part in parts:
        received = {}
        for key, output in part.outputs.items():
            define("outputDefinitions", "artifacts", key, {"artifactType": output})
        if part.interface.lookup:
            resolved = part.interface.shared(RESOLVED_PARAMETER)
            define("outputDefinitions", "parameters", resolved, {"parameterType": "STRING"})
        for kind, key, shared, source, definition in _list_inputs(part, shared=shares):
            [reference] = source.values()
            if isinstance(reference, dict) and reference.get("producerTask") == name:
                received[key] = reference[_OUTPUT_KEYS[kind]]
            elif inputs.setdefault(kind, {}).setdefault(shared, source) != source:
                raise AssertionError(f"Two steps of {name} have different inputs {shared}")
            else:
                define("inputDefinitions", kind, shared, definition)
        interfaces.append(dataclasses.replace(part.interface, received=received))
    if not shares:
        return inputs, component, interfaces[0]
    return inputs, component, StepInterface(pipeline=interfaces[0].pipeline, parts=interfaces)


def _list_inputs(part: Part, *, shared: bool) -> Iterator[tuple[str, str, str, Spec, Spec]]:
    """Yield the kind of each input, its name in the part and the pod, source and definition."""
    for key, source in part.artifacts.items():
        yield "artifacts", key, key, source, {"artifactType": part.inputs[key]}
    for key, (kind, source) in part.parameters.items():
        name = part.interface.shared(key) if shared else key
        yield "parameters", key, name, source, {"parameterType": kind}
