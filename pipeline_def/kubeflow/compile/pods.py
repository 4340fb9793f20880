"""Lets light steps that follow each other, and lookups, share a pod, which is one task of Kubeflow.

The pod runs them one after the other. Artifacts keep their names; parameters get the name of their
step as a prefix. `PODS` lists the groups.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from components.contract.configuration import from_json
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.kubeflow.compile.tasks import write_command
from pipeline_def.kubeflow.specification import PODS, Spec, Specification, executor_label, pod_of
from pipeline_def.kubeflow.step_interface import LEARNERS, StepInterface
from pipeline_def.steps import ANOMALY_GATE, PUSHER, TRANSFORM

# Kind of an input → how its source names an output of another task, and that output.
_SOURCES = {
    "artifacts": ("taskOutputArtifact", "outputArtifactKey"),
    "parameters": ("taskOutputParameter", "outputParameterKey"),
}


def transform_beside_validation(document: Specification) -> None:
    """Let training wait for the gate in the place of Transform, so that both sides run at once."""
    document.tasks[TRANSFORM.id]["dependentTasks"].remove(ANOMALY_GATE.id)
    for step in document.tasks.keys() & LEARNERS:
        waits = document.tasks[step]["dependentTasks"]
        waits[:] = sorted({*waits, ANOMALY_GATE.id})


def drop_implied(document: Specification) -> None:
    """Drop dependencies that others imply: TFX lists everything upstream."""
    producers = {task: set(_producers(document, task)) for task in document.tasks}
    waits = {
        task: producers[task] | set(definition.pop("dependentTasks", ()))
        for task, definition in document.tasks.items()
    }

    def before(task: str) -> set[str]:
        return waits[task].union(*map(before, waits[task]))

    for task, definition in document.tasks.items():
        implied = set().union(*map(before, waits[task]), producers[task])
        if needed := sorted(waits[task] - implied):
            definition["dependentTasks"] = needed


def _producers(document: Specification, task: str) -> Iterator[str]:
    for kind in ("parameters", "artifacts"):
        for source in document.sources(task, kind).values():
            for reference in source.values():
                if isinstance(reference, dict) and "producerTask" in reference:
                    yield reference["producerTask"]


def share_pods(document: Specification, tracking: TrackingConfig | None) -> None:
    """Join the tasks of every group in `PODS`; the one with the push reports the run."""
    interfaces: dict[str, StepInterface] = {}
    for pod, parts in PODS.items():
        joined = _Pod(document, pod, parts, tracking if PUSHER.id in parts else None)
        for part in parts:
            joined.add(part)
        interfaces |= dict(zip(parts, joined.interfaces, strict=True))
        joined.write()
    for task, definition in document.tasks.items():
        for kind, (reference, key) in _SOURCES.items():
            for source in document.sources(task, kind).values():
                output = source.get(reference, {})
                if interface := interfaces.get(output.get("producerTask")):
                    output["producerTask"] = pod_of(output["producerTask"])
                    output[key] = _shared_name(interface, kind, output[key])
        waits = {pod_of(name) for name in definition.get("dependentTasks", ())} - {task}
        definition["dependentTasks"] = sorted(waits)


def _shared_name(interface: StepInterface, kind: str, name: str) -> str:
    """Return the name that an input or output of a part has in its pod."""
    return interface.shared(name) if kind == "parameters" else name


@dataclass
class _Pod:
    document: Specification
    name: str
    parts: tuple[str, ...]
    tracking: TrackingConfig | None
    task: Spec = field(default_factory=lambda: {"inputs": {"artifacts": {}, "parameters": {}}})
    component: Spec = field(default_factory=dict)
    container: Spec = field(default_factory=dict)
    beam: list[str] = field(default_factory=list)
    interfaces: list[StepInterface] = field(default_factory=list)

    def add(self, part: str) -> None:
        """Move a task into the pod."""
        document, container = self.document, self.document.container(part)
        _, _, _, text, _, _, *beam = container["args"]
        interface = from_json(StepInterface, text)
        received: dict[str, str] = {}
        for kind in _SOURCES:
            received |= self._add_inputs(part, interface, kind)
            self._define(
                "outputDefinitions",
                kind,
                {
                    _shared_name(interface, kind, name): one
                    for name, one in document.definitions(part, "outputDefinitions", kind).items()
                },
            )
        self.interfaces.append(dataclasses.replace(interface, received=received))
        self.beam, self.container = beam or self.beam, container
        del document.components[part], document.executors[executor_label(part)]
        definition = document.tasks.pop(part)
        waits = [*self.task.get("dependentTasks", ()), *definition.get("dependentTasks", ())]
        self.task = {**definition, "inputs": self.task["inputs"], "dependentTasks": waits}

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

    def write(self) -> None:
        """Add the pod's task in the place of its parts."""
        label, direct = executor_label(self.name), any(part.direct for part in self.interfaces)
        self.document.tasks[self.name] = self.task | {
            "taskInfo": {"name": self.name},
            "componentRef": {"name": self.name},
        }
        self.document.components[self.name] = self.component | {"executorLabel": label}
        self.document.executors[label] = {"container": {"image": self.container["image"]}}
        # A part reads what an earlier one wrote in the pod.
        parts = [dataclasses.replace(part, direct=direct) for part in self.interfaces]
        pod = StepInterface(pipeline=parts[0].pipeline, parts=parts, tracking=self.tracking)
        write_command(self.document, self.name, pod, self.beam)
