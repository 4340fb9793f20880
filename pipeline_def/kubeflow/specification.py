"""A compiled pipeline: one YAML document, and a second one with settings for Kubernetes."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline_def import steps

Spec = dict[str, Any]

Target = Literal["oss", "vertex"]
"""Open-source Kubeflow Pipelines, or Vertex AI."""

_EXECUTOR = "_executor"


def executor_label(task: str) -> str:
    """Return the label of a task's executor, as TFX's compiler writes it."""
    return f"{task}{_EXECUTOR}"


def task_of(label: str) -> str:
    """Return the task of an executor's label."""
    return label.removesuffix(_EXECUTOR)


LOOKUPS = "Lookups"
"""The task of all lookups."""

PODS = {
    "Statistics-Schema": (steps.STATISTICS_GEN.id, steps.SCHEMA_GEN.id),
    "Validator-Gate": (steps.EXAMPLE_VALIDATOR.id, steps.ANOMALY_GATE.id),
    "Evaluator-Pusher": (
        *(steps.BASELINE_FINDER.id, steps.EVALUATOR.id),
        *(steps.REPORT.id, steps.PUSHER.id),
    ),
}
"""Task → the steps that share its pod, in their order.

A pod costs seconds even if its step is cached. What changes the cache key of one step changes those
after it too, and the reverse repeats what is short beside a training."""

_POD_OF = {part: pod for pod, parts in PODS.items() for part in parts}


def pod_of(name: str) -> str:
    """Return the task that runs a step; any other name stays."""
    return _POD_OF.get(name, name)


def steps_of(task: str) -> tuple[str, ...]:
    """Return the steps that a task runs, or those whose lookups it may run."""
    return tuple(steps.STEPS) if task == LOOKUPS else PODS.get(task, (task,))


def _part(document: Spec, *keys: str) -> Spec:
    """Return a nested mapping; {} if it does not exist."""
    for key in keys:
        part = document.get(key)
        document = part if isinstance(part, dict) else {}
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
