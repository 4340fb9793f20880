"""A specification under construction, and the names of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline_def.kubeflow.specification import Specification

_LOOKUP = "-lookup"
_EXECUTOR = "_executor"


def lookup_of(step: str) -> str:
    """Return the name of the lookup task of `step`."""
    return f"{step}{_LOOKUP}"


def executor_label(task: str) -> str:
    """Return the label of a task's executor, as TFX's compiler writes it."""
    return f"{task}{_EXECUTOR}"


def step_of(task: str) -> str:
    """Return the step of a task: for a lookup, the step it precedes."""
    return task.removesuffix(_LOOKUP)


class SpecDocument(Specification):
    """A specification as TFX compiles it: each component has one task, of the same name."""

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
