"""A compiled pipeline: one YAML document, and a second one with settings for Kubernetes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline_def import steps

Spec = dict[str, Any]

Target = Literal["oss", "vertex"]
"""Open-source Kubeflow Pipelines, or Vertex AI."""

_LOOKUP = "-lookup"
_EXECUTOR = "_executor"


def lookup_of(step: str) -> str:
    """Return the name of the lookup task of `step`."""
    return f"{step}{_LOOKUP}"


def executor_label(task: str) -> str:
    """Return the label of a task's executor, as TFX's compiler writes it."""
    return f"{task}{_EXECUTOR}"


def task_of(label: str) -> str:
    """Return the task of an executor's label."""
    return label.removesuffix(_EXECUTOR)


def step_of(task: str) -> str:
    """Return the step of a task: for a lookup, the step it precedes."""
    return task.removesuffix(_LOOKUP)


LOOKUPS = "Lookups"
"""The task of all lookups."""

PODS = {
    LOOKUPS: tuple(
        lookup_of(step.id)
        for step in (
            *(steps.EXAMPLE_GEN, steps.EXAMPLE_VALIDATOR, steps.TUNER, steps.TRAINER),
            *(steps.BASELINE_FINDER, steps.PREDICTOR),
        )
    ),
    "Statistics-Schema": (steps.STATISTICS_GEN.id, steps.SCHEMA_GEN.id),
    "Validator-Gate": (steps.EXAMPLE_VALIDATOR.id, steps.ANOMALY_GATE.id),
    "Evaluator-Pusher": (
        *(steps.BASELINE_FINDER.id, steps.EVALUATOR.id),
        *(steps.REPORT.id, steps.PUSHER.id),
    ),
}
"""Task → the lookups or steps that share its pod, in their order.

A pod costs seconds even if its step is cached. What changes the cache key of one step changes those
after it too, and the reverse repeats what is short beside a training."""

_POD_OF = {part: pod for pod, parts in PODS.items() for part in parts}


def pod_of(name: str) -> str:
    """Return the task that runs a step or a lookup; any other name stays."""
    return _POD_OF.get(name, name)


def parts_of(task: str) -> tuple[str, ...]:
    """Return the steps or lookups that a task may run."""
    return PODS.get(task, (task,))


def _part(document: Spec, *keys: str) -> Spec:
    """Return a nested mapping; {} if it does not exist."""
    for key in keys:
        document = document.get(key) or {}
    return document


@dataclass(frozen=True)
class Specification:
    """The two documents; all tasks are in the root."""

    spec: Spec
    platform: Spec = field(default_factory=dict)

    @property
    def tasks(self) -> dict[str, Spec]:
        """The tasks by name."""
        return _part(self.spec, "root", "dag", "tasks")

    @property
    def run_parameters(self) -> dict[str, Spec]:
        """The definitions of the run's parameters."""
        return _part(self.spec, "root", "inputDefinitions", "parameters")

    @property
    def executors(self) -> dict[str, Spec]:
        """The executors by label."""
        return _part(self.spec, "deploymentSpec", "executors")

    @property
    def components(self) -> dict[str, Spec]:
        """The components by name."""
        return _part(self.spec, "components")

    def component(self, task: str) -> Spec:
        """Return the component of a task."""
        return _part(self.components, self.tasks[task].get("componentRef", {}).get("name", ""))

    def executor(self, task: str) -> Spec:
        """Return the executor of a task."""
        return _part(self.executors, self.component(task).get("executorLabel", ""))

    def container(self, task: str) -> Spec:
        """Return the container of a task; {} if it has none."""
        return _part(self.executor(task), "container")

    def definitions(self, task: str, side: str, kind: str) -> dict[str, Spec]:
        """Return its inputDefinitions or outputDefinitions, of parameters or artifacts."""
        return _part(self.component(task), side, kind)

    def sources(self, task: str, kind: str) -> dict[str, Spec]:
        """Return where the inputs of a task come from; `kind` is parameters or artifacts."""
        return _part(self.tasks[task], "inputs", kind)

    def constants(self, task: str) -> dict[str, Any]:
        """Return the execution properties of a task that are constant."""
        return {
            name: source["runtimeValue"]["constant"]
            for name, source in self.sources(task, "parameters").items()
            if "runtimeValue" in source
        }

    def bind(self, task: str, name: str, kind: str, source: Mapping[str, Any]) -> None:
        """Give a task an input parameter."""
        inputs = self.component(task).setdefault("inputDefinitions", {})
        inputs.setdefault("parameters", {})[name] = {"parameterType": kind}
        sources = self.tasks[task].setdefault("inputs", {}).setdefault("parameters", {})
        sources[name] = dict(source)

    def unbind(self, task: str, name: str) -> None:
        """Remove an input parameter of a task."""
        del self.definitions(task, "inputDefinitions", "parameters")[name]
        del self.sources(task, "parameters")[name]
