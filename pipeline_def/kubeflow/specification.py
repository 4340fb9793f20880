"""A compiled pipeline as Kubeflow takes it: one YAML document, and a second one for Kubernetes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Spec = dict[str, Any]

Target = Literal["oss", "vertex"]
"""Open-source Kubeflow Pipelines, or Vertex AI."""


@dataclass(frozen=True)
class Specification:
    """What the two documents say; empty where they say nothing.

    One layer of it at a time: the tasks of the root, or those of a component that is a sub-DAG.
    """

    spec: Spec
    platform: Spec = field(default_factory=dict)
    sub_dag: str = ""
    """Component whose tasks are meant; "" for the root."""

    @property
    def layer(self) -> Spec:
        """The component that the tasks are in: its inputs are what they can be given."""
        if self.sub_dag:
            return self.components[self.sub_dag]
        root: Spec = self.spec.get("root", {})
        return root

    @property
    def tasks(self) -> dict[str, Spec]:
        """Task → its specification."""
        tasks: dict[str, Spec] = self.layer.get("dag", {}).get("tasks", {})
        return tasks

    def layers(self) -> Iterator[Self]:
        """Yield the specification once for the root, and once for each sub-DAG."""
        yield dataclasses.replace(self, sub_dag="")
        for name in sorted(self.components):
            if "dag" in self.components[name]:
                yield dataclasses.replace(self, sub_dag=name)

    def given(self, kind: str) -> dict[str, Spec]:
        """Return the inputs of the layer, parameters or artifacts, that its tasks may refer to."""
        found: dict[str, Spec] = self.layer.get("inputDefinitions", {}).get(kind, {})
        return found

    @property
    def run_parameters(self) -> dict[str, Spec]:
        """Parameter of the run → its definition."""
        definitions = self.spec.get("root", {}).get("inputDefinitions", {})
        parameters: dict[str, Spec] = definitions.get("parameters", {})
        return parameters

    @property
    def executors(self) -> dict[str, Spec]:
        """Label → executor."""
        executors: dict[str, Spec] = self.spec.get("deploymentSpec", {}).get("executors", {})
        return executors

    @property
    def components(self) -> dict[str, Spec]:
        """Name → component."""
        components: dict[str, Spec] = self.spec.get("components", {})
        return components

    def component(self, task: str) -> Spec:
        """Return the component of a task."""
        return self.components.get(self.tasks[task].get("componentRef", {}).get("name", ""), {})

    def executor(self, task: str) -> Spec:
        """Return the executor of a task."""
        return self.executors.get(self.component(task).get("executorLabel", ""), {})

    def definitions(self, task: str, side: str, kind: str) -> dict[str, Spec]:
        """Return what the component of a task defines.

        Args:
            task: its name.
            side: inputDefinitions or outputDefinitions.
            kind: parameters or artifacts.
        """
        found: dict[str, Spec] = self.component(task).get(side, {}).get(kind, {})
        return found

    def sources(self, task: str, kind: str) -> dict[str, Spec]:
        """Return where the inputs of a task, parameters or artifacts, come from."""
        found: dict[str, Spec] = self.tasks[task].get("inputs", {}).get(kind, {})
        return found

    def inputs(self, kind: str) -> Iterator[tuple[str, str, Spec]]:
        """Yield task, input and its source for all inputs, parameters or artifacts."""
        for task in sorted(self.tasks):
            for name, source in sorted(self.sources(task, kind).items()):
                yield task, name, source

    def defined(self, kind: str) -> Iterator[tuple[str, str, str, Spec]]:
        """Yield task, side, name and definition of all parameters or artifacts of components."""
        for task in sorted(self.tasks):
            for side in ("inputDefinitions", "outputDefinitions"):
                for name, definition in sorted(self.definitions(task, side, kind).items()):
                    yield task, side, name, definition

    def containers(self) -> Iterator[tuple[str, Spec]]:
        """Yield each task that runs a container, and the container."""
        for task in sorted(self.tasks):
            if container := self.executor(task).get("container"):
                yield task, container
