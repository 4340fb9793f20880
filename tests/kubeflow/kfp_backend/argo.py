"""Walks an Argo workflow as Argo's controller does, for the features that KFP's compiler uses."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any, Literal

Template = Mapping[str, Any]
Values = dict[str, str]
State = Literal["Succeeded", "Failed", "Skipped", "Omitted"]

# {{$}} and {{$.inputs...}} are the launcher's own.
_PLACE = re.compile(r"\{\{([a-z][\w.-]*)\}\}")
_DEPENDS = re.compile(r"([\w-]+)\.Succeeded")
_WHEN = re.compile(r"(.*) != (true|false)")
_UNSUPPORTED = ("hooks", "withItems", "withParam", "withSequence")


@dataclass
class Node:
    """The state of a task, and its output parameters."""

    state: State
    outputs: Values = field(default_factory=dict)


@dataclass
class Workflow:
    """A workflow as the API server hands it to Kubernetes."""

    manifest: Mapping[str, Any]
    uid: str
    run_pod: Callable[[str, Template, Values], Node]
    """Runs a container template, given its path in the workflow and its placeholders."""

    def run(self) -> None:
        """Run all of it, one task after the other."""
        spec = self.manifest["spec"]
        self._templates = {template["name"]: template for template in spec["templates"]}
        given = spec["arguments"]["parameters"]
        self._globals = {f"workflow.parameters.{one['name']}": one["value"] for one in given}
        name = self.manifest["metadata"]["generateName"] + "x7k2p"
        self._globals |= {"workflow.uid": self.uid, "workflow.name": name}
        self._run_template(spec["entrypoint"], {}, path="")

    def _run_template(self, name: str, given: Values, *, path: str) -> Node:
        template = self._templates[name]
        scope = dict(self._globals)
        for one in template.get("inputs", {}).get("parameters", []):
            value = given[one["name"]] if one["name"] in given else one["default"]
            scope[f"inputs.parameters.{one['name']}"] = value
        if "dag" in template:
            return self._run_dag(template["dag"], scope, path=path)
        return self._run_attempts(template, scope, path=path)

    def _run_attempts(self, template: Template, scope: Values, *, path: str) -> Node:
        if "retryStrategy" not in template:
            return self.run_pod(path, template, scope)
        for attempt in range(1 + int(filled(template["retryStrategy"]["limit"], scope))):
            node = self.run_pod(f"{path}({attempt})", template, scope)
            if node.state == "Succeeded":
                break
        return node

    def _run_dag(self, dag: Template, scope: Values, *, path: str) -> Node:
        states: dict[str, State] = {}
        for task in _ordered(dag["tasks"]):
            name = task["name"]
            inner = f"{path}/{name}".lstrip("/")
            if any(states[other] != "Succeeded" for other in _before(task)):
                node = Node("Omitted")
            elif not _is_wanted(filled(task.get("when", ""), scope)):
                node = Node("Skipped")
            else:
                arguments = task.get("arguments", {}).get("parameters", [])
                given = {one["name"]: filled(one["value"], scope) for one in arguments}
                node = self._run_template(task["template"], given, path=inner)
            states[name] = node.state
            prefix = f"tasks.{name}.outputs.parameters."
            scope |= {prefix + key: value for key, value in node.outputs.items()}
        return Node("Failed" if "Failed" in states.values() else "Succeeded")


def filled(text: str, scope: Mapping[str, str]) -> str:
    """Fill in Argo's placeholders; an unknown one is an error."""
    return _PLACE.sub(lambda match: scope[match[1]], text)


def _before(task: Template) -> list[str]:
    terms = task["depends"].split(" && ") if task.get("depends") else []
    found = [_DEPENDS.fullmatch(term) for term in terms]
    return [match[1] for match in found if match]


def _ordered(tasks: list[Template]) -> Iterator[Template]:
    for task in tasks:
        if unsupported := [key for key in _UNSUPPORTED if key in task]:
            raise NotImplementedError(f"{task['name']}: {unsupported}")
    named = {task["name"]: task for task in tasks}
    order = TopologicalSorter({name: _before(task) for name, task in named.items()})
    return (named[name] for name in order.static_order())


def _is_wanted(when: str) -> bool:
    if not when:
        return True
    match = _WHEN.fullmatch(when)
    if not match:
        raise NotImplementedError(when)
    return match[1] != match[2]
