"""Describes what runs of each component, its step and the lookup before it, and writes the pods.

KFP consults its cache before any code of ours runs, and a folder keeps its name when its images
change. A lookup finds what TFX's driver would; the result is a parameter of the step after it and
so part of the cache key.

Parts of one pod run one after the other. Their artifacts keep their names; their parameters get the
name of their step as a prefix. `PODS` lists the groups.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from components.contract.configuration import to_json
from components.validation.lookup import EXAMPLES_KEY
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
from pipeline_def.steps import (
    ANOMALY_GATE,
    BASELINE_FINDER,
    EXAMPLE_GEN,
    EXAMPLE_VALIDATOR,
    PUSHER,
    TRAINER,
)

TYPES = {str: "STRING", int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE"}
_OUTPUT_KEYS = {"artifacts": "outputArtifactKey", "parameters": "outputParameterKey"}
# Lookup → its parameter → the step whose lookup has found the value.
_FOUND_BEFORE = {
    EXAMPLE_VALIDATOR.id: {EXAMPLES_KEY: EXAMPLE_GEN.id},
    BASELINE_FINDER.id: {f"{step}_resolved": step for step in (EXAMPLE_GEN.id, *LEARNERS)},
}


@dataclass
class Part:
    """A step, or the lookup before it. Sources are those of a task in a specification."""

    interface: StepInterface
    parameters: dict[str, tuple[str, Spec]]
    """Parameter → its type and its source."""
    artifacts: dict[str, tuple[Spec, Spec]]
    """Input → its artifact type and its source."""
    outputs: dict[str, Spec]
    """Output → its artifact type."""

    @property
    def step(self) -> str:
        """Id of the step, also of a lookup."""
        return self.interface.step

    def constants(self) -> dict[str, Any]:
        """Return the parameters that are constant."""
        sources = {name: source for name, (_, source) in self.parameters.items()}
        given = {name: source.get("runtimeValue") for name, source in sources.items()}
        return {name: value["constant"] for name, value in given.items() if value}


def producers(part: Part) -> set[str]:
    """Return the tasks whose outputs a part reads."""
    inputs = (*part.artifacts.values(), *part.parameters.values())
    references = [reference for _, source in inputs for reference in source.values()]
    return {reference["producerTask"] for reference in references if "producerTask" in reference}


def constant(value: Any) -> Spec:
    """Return the source of a parameter with one value."""
    return {"runtimeValue": {"constant": value}}


def describe(components: list[Any], pipeline: str, *, direct: bool, workers: int) -> list[Part]:
    """Return the lookups, then the steps of the components.

    With `direct`, all of them use remote URIs instead of the launcher's copies.
    """
    common = StepInterface(pipeline=pipeline, direct=direct)
    interfaces = {TRAINER.id: replace(common, workers=workers)}
    steps = [
        _describe_step(component, interfaces.get(component.id, common)) for component in components
    ]
    looking = {
        component.id: component.driver_class
        for component in components
        if not component.driver_class.__module__.startswith("tfx.dsl.")
    }
    lookups = [_describe_lookup(step, looking) for step in steps if step.step in looking]
    for step in steps:
        if step.step in looking:
            step.parameters[RESOLVED_PARAMETER] = ("STRING", _found_by(step.step))
        if step.step == PUSHER.id and BASELINE_FINDER.id in looking:
            # It notes the candidate for the lookup of the next run.
            step.parameters[RESOLVED_PARAMETER] = ("STRING", _found_by(BASELINE_FINDER.id))
    return [*lookups, *steps]


def _describe_step(component: Any, common: StepInterface) -> Part:
    properties = {k: v for k, v in component.exec_properties.items() if v is not None}
    parameters = {name: _describe_property(value) for name, value in properties.items()}
    interface = replace(
        common,
        step=component.id,
        executor=_dotted_path(component.executor_spec.executor_class),
        inputs={name: _dotted_path(channel.type) for name, channel in component.inputs.items()},
        outputs={name: _dotted_path(channel.type) for name, channel in component.outputs.items()},
        integers=_integers(parameters),
    )
    artifacts = {}
    for name, channel in component.inputs.items():
        producer = pod_of(channel.producer_component_id)
        source = {"producerTask": producer, "outputArtifactKey": channel.output_key}
        artifacts[name] = (_artifact_type(channel.type), {"taskOutputArtifact": source})
    outputs = {name: _artifact_type(channel.type) for name, channel in component.outputs.items()}
    return Part(interface, parameters, artifacts, outputs)


def _describe_lookup(step: Part, drivers: Mapping[str, Any]) -> Part:
    """Describe a lookup. All of them run before any step, so that they read no artifacts."""
    driver = drivers[step.step]
    names = sorted({*driver.lookup_properties, "code_digest"})
    parameters = {name: step.parameters[name] for name in names}
    interface = StepInterface(
        step=step.step,
        lookup=_dotted_path(driver.lookup_function),
        pipeline=step.interface.pipeline,
        integers=_integers(parameters),
        direct=step.interface.direct,
    )
    for name, earlier in _FOUND_BEFORE.get(step.step, {}).items():
        if earlier in drivers:
            parameters[name] = ("STRING", _found_by(earlier))
    # Nothing is written there: its URI tells the lookup where the folders of pipeline and run are.
    place = {"schemaTitle": "system.Artifact", "schemaVersion": "0.0.1"}
    return Part(interface, parameters, artifacts={}, outputs={"place": place})


def _found_by(step: str) -> Spec:
    key = StepInterface(step=step).shared(RESOLVED_PARAMETER)
    return {"taskOutputParameter": {"producerTask": LOOKUPS, "outputParameterKey": key}}


def _describe_property(value: Any) -> tuple[str, Spec]:
    """Return the type and the source of an execution property, as TFX's compiler has them."""
    from google.protobuf.json_format import MessageToDict
    from tfx.orchestration.kubeflow.v2 import compiler_utils

    kind = MessageToDict(compiler_utils.build_parameter_type_spec(value))["parameterType"]
    text = MessageToDict(compiler_utils.value_converter(value))["constant"]
    if isinstance(text, str) and text.startswith(("{\n", "[\n")):
        # On one line, for people.
        text = json.dumps(json.loads(text), sort_keys=True)
    return kind, constant(text)


def _integers(parameters: Mapping[str, tuple[str, Spec]]) -> list[str]:
    return sorted(name for name, (kind, _) in parameters.items() if kind == TYPES[int])


def _dotted_path(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _artifact_type(kind: Any) -> Spec:
    """Return the type of an artifact; Kubeflow's own as its SDK does, so that they are drawn."""
    from tfx.orchestration.kubeflow.v2.compiler_utils import get_artifact_schema

    schema = get_artifact_schema(kind)
    schema = schema if isinstance(schema, str) else schema.decode()
    title = schema.partition("\n")[0].removeprefix("title: ")
    if title.startswith("system."):
        return {"schemaTitle": title, "schemaVersion": "0.0.1"}
    return {"instanceSchema": schema}


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
        interfaces.append(replace(part.interface, received=received))
    if not shares:
        return inputs, component, interfaces[0]
    return inputs, component, StepInterface(pipeline=interfaces[0].pipeline, parts=interfaces)


def _list_inputs(part: Part, *, shared: bool) -> Iterator[tuple[str, str, str, Spec, Spec]]:
    """Yield the kind of each input, its name in the part and the pod, source and definition."""
    for key, (artifact_type, source) in part.artifacts.items():
        yield "artifacts", key, key, source, {"artifactType": artifact_type}
    for key, (kind, source) in part.parameters.items():
        name = part.interface.shared(key) if shared else key
        yield "parameters", key, name, source, {"parameterType": kind}
