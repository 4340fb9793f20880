"""A specification as its check looks at it: tasks with their components and executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """Something that the target would refuse."""

    code: str
    """Short name of the rule."""
    text: str
    """Where it is, why it is refused, and what to do."""


@dataclass(frozen=True)
class SpecView:
    """The two documents of a compiled pipeline."""

    spec: dict[str, Any]
    platform: dict[str, Any]
    target: str
    """oss or vertex."""

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """Task → its specification."""
        tasks: dict[str, dict[str, Any]] = self.spec.get("root", {}).get("dag", {}).get("tasks", {})
        return tasks

    @property
    def run_parameters(self) -> dict[str, dict[str, Any]]:
        """Parameter of the run → its definition."""
        definitions = self.spec.get("root", {}).get("inputDefinitions", {})
        parameters: dict[str, dict[str, Any]] = definitions.get("parameters", {})
        return parameters

    @property
    def executors(self) -> dict[str, dict[str, Any]]:
        """Label → executor."""
        executors: dict[str, dict[str, Any]] = self.spec.get("deploymentSpec", {}).get(
            "executors", {}
        )
        return executors

    def component(self, task: str) -> dict[str, Any]:
        """Return the component of a task; empty when there is none."""
        name = self.tasks.get(task, {}).get("componentRef", {}).get("name", "")
        component: dict[str, Any] = self.spec.get("components", {}).get(name, {})
        return component

    def executor(self, task: str) -> dict[str, Any]:
        """Return the executor of a task; empty when there is none."""
        return self.executors.get(self.component(task).get("executorLabel", ""), {})

    def definitions(self, task: str, side: str, kind: str) -> dict[str, dict[str, Any]]:
        """Return what the component of a task defines.

        Args:
            task: its name.
            side: inputDefinitions or outputDefinitions.
            kind: parameters or artifacts.
        """
        found: dict[str, dict[str, Any]] = self.component(task).get(side, {}).get(kind, {})
        return found

    def inputs(self, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield task, input and its source, for `kind` parameters or artifacts."""
        for task, definition in sorted(self.tasks.items()):
            for name, source in sorted(definition.get("inputs", {}).get(kind, {}).items()):
                yield task, name, source

    def containers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield task and container."""
        for task in sorted(self.tasks):
            if container := self.executor(task).get("container"):
                yield task, container
