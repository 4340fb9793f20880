"""A specification while it is made: what the compiler's steps read from it and write into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]

_LOOKUP = "-lookup"
_EXECUTOR = "_executor"


def lookup_of(step: str) -> str:
    """Return the name of the task that looks things up for `step`."""
    return f"{step}{_LOOKUP}"


def executor_label(task: str) -> str:
    """Return the label of a task's executor, as TFX's compiler writes it."""
    return f"{task}{_EXECUTOR}"


def step_of(task: str) -> str | None:
    """Return the step that `task` looks things up for; None when it is no lookup."""
    return task.removesuffix(_LOOKUP) if task.endswith(_LOOKUP) else None


@dataclass(frozen=True)
class SpecDocument:
    """A specification as TFX compiles it: every component has the name of its only task."""

    spec: Spec

    @property
    def tasks(self) -> dict[str, Spec]:
        """Task → its specification."""
        tasks: dict[str, Spec] = self.spec["root"]["dag"]["tasks"]
        return tasks

    @property
    def components(self) -> dict[str, Spec]:
        """Task → its component."""
        components: dict[str, Spec] = self.spec["components"]
        return components

    def container(self, task: str) -> Spec:
        """Return the container of a task."""
        executors = self.spec["deploymentSpec"]["executors"]
        container: Spec = executors[executor_label(task)]["container"]
        return container

    def definitions(self, task: str) -> Spec:
        """Return the input parameters that the component of a task defines."""
        inputs = self.components[task].setdefault("inputDefinitions", {})
        parameters: Spec = inputs.setdefault("parameters", {})
        return parameters

    def sources(self, task: str) -> Spec:
        """Return where the input parameters of a task come from."""
        inputs = self.tasks[task].setdefault("inputs", {})
        parameters: Spec = inputs.setdefault("parameters", {})
        return parameters

    def constants(self, task: str) -> dict[str, Any]:
        """Return the execution properties of a task that are fixed."""
        return {
            name: source["runtimeValue"]["constant"]
            for name, source in self.sources(task).items()
            if "runtimeValue" in source
        }

    def bind(self, task: str, name: str, kind: str, source: Mapping[str, Any]) -> None:
        """Give a task an input parameter."""
        self.definitions(task)[name] = {"parameterType": kind}
        self.sources(task)[name] = dict(source)

    def unbind(self, task: str, name: str) -> None:
        """Take an input parameter away from a task."""
        del self.definitions(task)[name]
        del self.sources(task)[name]
