"""A specification while it is made: what the compiler's steps write into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline_def.kubeflow.specification import Spec, Specification

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


class SpecDocument(Specification):
    """A specification as TFX compiles it: every component has the name of its only task."""

    def container(self, task: str) -> Spec:
        """Return the container of a task."""
        container: Spec = self.executor(task)["container"]
        return container

    def constants(self, task: str) -> dict[str, Any]:
        """Return the execution properties of a task that are fixed."""
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
        """Take an input parameter away from a task."""
        del self.definitions(task, "inputDefinitions", "parameters")[name]
        del self.sources(task, "parameters")[name]
