"""Rules on the shape of a specification: documents, names, and how tasks hang together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pipeline_def.kubeflow.check.constructs import Problem, Rule, not_of, problem
from pipeline_def.kubeflow.specification import Specification, Target

# It becomes part of names of Kubernetes objects.
_PIPELINE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,126}[a-z0-9])?")


def check_documents(documents: list[Any], target: Target) -> Iterator[Problem]:
    """Yield what keeps the file from being read as a specification at all."""
    from kfp.pipeline_spec import pipeline_spec_pb2

    if not documents or not isinstance(documents[0], dict):
        yield problem("empty")
        return
    if "pipelineSpec" in documents[0]:
        yield problem("json-wrapper")
        return
    if len(documents) > 2:
        yield problem("documents", found="more than two YAML documents")
    if len(documents) > 1 and set(documents[1]) != {"platforms"}:
        yield problem("documents", found="other keys in its second document")
    if len(documents) > 1 and target == "vertex":
        yield problem("platform")
    # The backend discards what it does not know below deploymentSpec without a word.
    reason = not_of(pipeline_spec_pb2.PipelineSpec, documents[0]) or not_of(
        pipeline_spec_pb2.PipelineDeploymentConfig, documents[0].get("deploymentSpec", {})
    )
    if reason:
        yield problem("fields", reason=reason)


def pipeline_name(specification: Specification) -> Iterator[Problem]:
    """The name of the pipeline is part of names and URIs."""
    name = specification.spec.get("pipelineInfo", {}).get("name", "")
    if not _PIPELINE_NAME.fullmatch(name):
        yield problem("pipeline-name", name=name)


def references(specification: Specification) -> Iterator[Problem]:
    """Every task has a component, and every component an executor."""
    if not specification.tasks:
        yield problem("no-tasks")
    for task, definition in sorted(specification.tasks.items()):
        name = definition.get("componentRef", {}).get("name")
        component = specification.component(task)
        if name not in specification.components:
            yield problem("component", task=task, name=name)
        elif "dag" not in component and not specification.executor(task):
            yield problem("executor", task=task, label=component.get("executorLabel"))
        if not definition.get("taskInfo", {}).get("name"):
            yield problem("task-info", task=task)


def order(specification: Specification) -> Iterator[Problem]:
    """Tasks wait for tasks that exist, and never for each other."""
    graph = {}
    for task, definition in specification.tasks.items():
        graph[task] = set(definition.get("dependentTasks", []))
        for missing in sorted(graph[task] - set(specification.tasks)):
            yield problem("dependency", task=task, missing=missing)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield problem("cycle", circle=" → ".join(error.args[1]))


RULES: tuple[Rule, ...] = (pipeline_name, references, order)
