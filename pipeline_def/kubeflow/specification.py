"""A compiled pipeline: one YAML document, and a second one with settings for Kubernetes."""

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
    """The two documents, seen one layer at a time: the root, or a component that is a sub-DAG."""

    spec: Spec
    platform: Spec = field(default_factory=dict)
    sub_dag: str = ""
    """Component whose tasks form the layer; empty for the root."""

    @property
    def layer(self) -> Spec:
        """The component that contains the tasks."""
        layer: Spec = self.components[self.sub_dag] if self.sub_dag else self.spec.get("root", {})
        return layer

    @property
    def tasks(self) -> dict[str, Spec]:
        """The tasks of the layer by name."""
        tasks: dict[str, Spec] = self.layer.get("dag", {}).get("tasks", {})
        return tasks

    def layers(self) -> Iterator[Self]:
        """Yield the root layer, then every sub-DAG."""
        yield dataclasses.replace(self, sub_dag="")
        for name in sorted(self.components):
            if "dag" in self.components[name]:
                yield dataclasses.replace(self, sub_dag=name)

    def given(self, kind: str) -> dict[str, Spec]:
        """Return the inputs of the layer; `kind` is parameters or artifacts."""
        inputs: dict[str, Spec] = self.layer.get("inputDefinitions", {}).get(kind, {})
        return inputs

    @property
    def run_parameters(self) -> dict[str, Spec]:
        """The definitions of the run's parameters."""
        return dataclasses.replace(self, sub_dag="").given("parameters")

    @property
    def executors(self) -> dict[str, Spec]:
        """The executors by label."""
        executors: dict[str, Spec] = self.spec.get("deploymentSpec", {}).get("executors", {})
        return executors

    @property
    def components(self) -> dict[str, Spec]:
        """The components by name."""
        components: dict[str, Spec] = self.spec.get("components", {})
        return components

    def component(self, task: str) -> Spec:
        """Return the component of a task."""
        return self.components.get(self.tasks[task].get("componentRef", {}).get("name", ""), {})

    def executor(self, task: str) -> Spec:
        """Return the executor of a task."""
        return self.executors.get(self.component(task).get("executorLabel", ""), {})

    def definitions(self, task: str, side: str, kind: str) -> dict[str, Spec]:
        """Return what a task's component defines.

        Args:
            task: Name of the task.
            side: inputDefinitions or outputDefinitions.
            kind: parameters or artifacts.
        """
        definitions: dict[str, Spec] = self.component(task).get(side, {}).get(kind, {})
        return definitions

    def sources(self, task: str, kind: str) -> dict[str, Spec]:
        """Return where the inputs of a task come from; `kind` is parameters or artifacts."""
        sources: dict[str, Spec] = self.tasks[task].get("inputs", {}).get(kind, {})
        return sources

    def steps(self) -> Iterator[tuple[str, Spec, Spec]]:
        """Yield name, task and container of every task that runs a container, in all layers."""
        for layer in self.layers():
            for name, task in layer.tasks.items():
                if container := layer.executor(name).get("container"):
                    yield name, task, container

    def kubernetes_settings(self) -> dict[str, Spec]:
        """Return the platform document's settings by executor label."""
        kubernetes = (self.platform.get("platforms") or {}).get("kubernetes", {})
        settings: dict[str, Spec] = kubernetes.get("deploymentSpec", {}).get("executors", {})
        return settings
