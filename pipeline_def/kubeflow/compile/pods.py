"""Lets lookups, and light steps that follow each other, share a pod, which is one Kubeflow task.

The pod runs them one after the other. Artifacts keep their names; parameters get the name of their
step as a prefix. `PODS` lists the groups.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from components.contract.configuration import to_json
from components.evaluation.baseline_lookup import TRAINING_PROPERTY
from pipeline_def.kubeflow.specification import (
    LOOKUPS,
    PODS,
    Spec,
    Specification,
    executor_label,
    pod_of,
)
from pipeline_def.kubeflow.step_interface import COMMAND, LEARNERS, StepInterface
from pipeline_def.steps import ANOMALY_GATE, BASELINE_FINDER, TRAINER

# Kind of an input → how its source names an output of another task, and that output.
_SOURCES = {
    "artifacts": ("taskOutputArtifact", "outputArtifactKey"),
    "parameters": ("taskOutputParameter", "outputParameterKey"),
}


def _producers(document: Specification, task: str) -> Iterator[str]:
    for kind in ("parameters", "artifacts"):
        for source in document.sources(task, kind).values():
            for reference in source.values():
                if isinstance(reference, dict) and "producerTask" in reference:
                    yield reference["producerTask"]


def share_pods(
    document: Specification, interfaces: dict[str, StepInterface]
) -> dict[str, StepInterface]:
    """Join the tasks of every group in `PODS`; return the interfaces of all tasks that are left."""
    parts = dict(interfaces)
    for name, group in PODS.items():
        pod = _Pod(document, name, tuple(part for part in group if part in interfaces))
        for part in pod.parts:
            pod.add(part, interfaces.pop(part))
        interfaces[name] = pod.write()
    for task, definition in document.tasks.items():
        for kind, (reference, key) in _SOURCES.items():
            for source in document.sources(task, kind).values():
                output = source.get(reference, {})
                producer = output.get("producerTask")
                if producer and pod_of(producer) != producer:
                    output["producerTask"] = pod_of(producer)
                    output[key] = _shared_name(parts[producer], kind, output[key])
        # TFX lists everything upstream, and lets Transform wait for the gate in place of training.
        waits = {*_producers(document, task)}
        waits |= {pod_of(ANOMALY_GATE.id)} if task in LEARNERS else set()
        definition |= {"dependentTasks": sorted(waits)} if waits else {}
    return interfaces


def _shared_name(interface: StepInterface, kind: str, name: str) -> str:
    """Return the name that an input or output of a part has in its pod."""
    return interface.shared(name) if kind == "parameters" else name


@dataclass
class _Pod:
    document: Specification
    name: str
    parts: tuple[str, ...]
    task: Spec = field(default_factory=lambda: {"inputs": {"artifacts": {}, "parameters": {}}})
    component: Spec = field(default_factory=dict)
    interfaces: list[StepInterface] = field(default_factory=list)

    def add(self, part: str, interface: StepInterface) -> None:
        """Move a task into the pod."""
        document, received = self.document, dict[str, str]()
        for kind in _SOURCES:
            received |= self._add_inputs(part, interface, kind)
            outputs = document.definitions(part, "outputDefinitions", kind)
            shared = {_shared_name(interface, kind, name): one for name, one in outputs.items()}
            self._define("outputDefinitions", kind, shared)
        self.interfaces.append(dataclasses.replace(interface, received=received))
        self.executor = document.executors.pop(document.component(part)["executorLabel"])
        del document.components[part]
        self.task = {**document.tasks.pop(part), "inputs": self.task["inputs"]}

    def _add_inputs(self, part: str, interface: StepInterface, kind: str) -> dict[str, str]:
        """Add the inputs from outside; return the others, with the outputs that they read."""
        reference, key = _SOURCES[kind]
        inputs, received = self.task["inputs"][kind], {}
        defined = self.document.definitions(part, "inputDefinitions", kind)
        for name, source in self.document.sources(part, kind).items():
            output, shared = source.get(reference, {}), _shared_name(interface, kind, name)
            if output.get("producerTask") in self.parts:
                maker = self.interfaces[self.parts.index(output["producerTask"])]
                received[name] = _shared_name(maker, kind, output[key])
            elif inputs.setdefault(shared, source) != source:
                raise AssertionError(f"Two steps of {self.name} have different inputs {shared}")
            else:
                self._define("inputDefinitions", kind, {shared: defined[name]})
        return received

    def _define(self, side: str, kind: str, definitions: Spec) -> None:
        if definitions:
            self.component.setdefault(side, {}).setdefault(kind, {}).update(definitions)

    def write(self) -> StepInterface:
        """Add the pod's task in the place of its parts; return its interface."""
        label, name = executor_label(self.name), {"name": self.name}
        self.document.tasks[self.name] = self.task | {"taskInfo": name, "componentRef": name}
        self.document.components[self.name] = self.component | {"executorLabel": label}
        self.document.executors[label] = self.executor
        return StepInterface(pipeline=self.interfaces[0].pipeline, parts=self.interfaces)


def write_commands(document: Specification, interfaces: dict[str, StepInterface]) -> None:
    """Start our entrypoint for every task."""
    for task, interface in interfaces.items():
        container = document.container(task)
        # KFP ignores TFX's hook before the cache; a lookup replaces it.
        container.pop("lifecycle", None)
        container["command"] = list(COMMAND)
        given = ("--step", task, "--interface", to_json(interface))
        container["args"] = [*given, "--executor_input", "{{$}}"]


def tell_training(document: Specification) -> None:
    """Tell the lookup of the baseline all that decides on the candidate, which is not yet there.

    These are the tasks up to the training, as KFP's cache sees them, and their parameters.
    """
    tasks, waiting = set[str](), [TRAINER.id]
    while waiting:
        tasks.add(task := waiting.pop())
        waiting += {*_producers(document, task)} - {LOOKUPS, *tasks}
    seen = [
        [document.tasks[task]["inputs"], *map(document.container(task).get, ("image", "args"))]
        for task in sorted(tasks)
    ]
    digest = hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]
    # The parameters of a part have its step's name as a prefix.
    finder = StepInterface(step=BASELINE_FINDER.id)
    document.bind(
        LOOKUPS,
        finder.shared(TRAINING_PROPERTY),
        "STRING",
        {"runtimeValue": {"constant": digest}},
    )
    for task in sorted(tasks):
        for source in document.sources(task, "parameters").values():
            if name := source.get("componentInputParameter"):
                kind = document.run_parameters[name]["parameterType"]
                document.bind(LOOKUPS, finder.shared(name), kind, source)
