"""Rules that hold for one target only: open-source Kubeflow Pipelines, or Vertex AI."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator

from components.storage.artifact_files import on_disk
from pipeline_def.kubeflow.check.constructs import Problem, Rule, problem
from pipeline_def.kubeflow.check.container_rules import arguments
from pipeline_def.kubeflow.check.data_rules import inputs_without_value
from pipeline_def.kubeflow.specification import Specification

_SCHEMA_VERSION = "2.1.0"
# It becomes part of names of Argo's nodes.
_TASK_NAME = re.compile(r"[a-zA-Z][-a-zA-Z0-9]{0,120}")
_ARGO_TAG = re.compile(r"\{\{\s*(inputs|outputs|steps|tasks)\.")
# In it TFX puts all tasks but the exit handler, and hands it no parameters of the run.
_TFX_DAG = "tfx-dag"


def not_implemented(specification: Specification) -> Iterator[Problem]:
    """Open-source Kubeflow refuses or ignores what Vertex AI has."""
    for task, definition in sorted(specification.tasks.items()):
        executor = specification.executor(task)
        found = {
            "resolver": "resolver" in executor,
            "custom-job": "customJob" in executor,
            "artifact-iterator": "artifactIterator" in definition,
            "pre-cache-check": "lifecycle" in executor.get("container", {}),
            "exit-handler": task == _TFX_DAG,
        }
        yield from (problem(code, task=task) for code, there in found.items() if there)


def schema_version(specification: Specification) -> Iterator[Problem]:
    """Open-source Kubeflow takes 2.1.0 only; TFX's default is 2.0.0."""
    version = specification.spec.get("schemaVersion")
    if version != _SCHEMA_VERSION:
        yield problem("schema-version", found=version)


def task_names(specification: Specification) -> Iterator[Problem]:
    """Argo, which runs the tasks, takes no other characters."""
    for task in sorted(specification.tasks):
        if not _TASK_NAME.fullmatch(task):
            yield problem("task-name", task=task)


def importers(specification: Specification) -> Iterator[Problem]:
    """Open-source Kubeflow takes no conditions on importers, and URIs from two sources only."""
    for task, definition in sorted(specification.tasks.items()):
        importer = specification.executor(task).get("importer")
        if importer is None:
            continue
        if definition.get("triggerPolicy", {}).get("condition"):
            yield problem("importer-condition", task=task)
        uri = importer.get("artifactUri", {})
        name, constant = uri.get("runtimeParameter"), uri.get("constant")
        source = specification.sources(task, "parameters").get(name, {})
        if name and "componentInputParameter" not in source:
            yield problem("importer-parameter", task=task, name=name)
        elif not name and on_disk(str(constant)):
            yield problem("importer-uri", task=task, uri=constant)


def lost_defaults(specification: Specification) -> Iterator[Problem]:
    """The driver does not pass on the default of a parameter that is not optional."""
    for task, name, parameter in inputs_without_value(specification):
        if parameter.get("defaultValue") is not None:
            yield problem("lost-default", task=task, name=name)


def commands(specification: Specification) -> Iterator[Problem]:
    """The launcher wraps the command, and Argo looks for tags of its own in it."""
    for task, container in specification.containers():
        if not (container.get("command") or container.get("args")):
            yield problem("command", task=task)
    for task, argument in arguments(specification):
        if tag := _ARGO_TAG.search(argument):
            yield problem("argo-tag", task=task, tag=tag[0])


def distinct_containers(specification: Specification) -> Iterator[Problem]:
    """The backend stores components by their containers: equal ones share inputs and outputs."""
    seen: dict[str, str] = {}
    for layer in specification.layers():
        for task, container in layer.containers():
            name = layer.tasks[task]["componentRef"]["name"]
            first = seen.setdefault(json.dumps(container, sort_keys=True), name)
            if first != name:
                yield problem("same-container", task=task, first=first)


def accelerators(specification: Specification, *, pattern: str, example: str) -> Iterator[Problem]:
    """The two targets name accelerators differently."""
    for task, container in specification.containers():
        kind = container.get("resources", {}).get("accelerator", {}).get("type")
        if kind is not None and not re.fullmatch(pattern, kind):
            yield problem("accelerator", task=task, kind=kind, example=example)


def pipeline_root(specification: Specification, *, schemes: tuple[str, ...]) -> Iterator[Problem]:
    """Steps read and write artifacts on these stores only."""
    root = specification.spec.get("defaultPipelineRoot")
    if root is not None and not root.startswith(schemes):
        yield problem("pipeline-root", root=root, schemes=" or ".join(schemes))


OPEN_SOURCE: tuple[Rule, ...] = (
    schema_version,
    task_names,
    not_implemented,
    importers,
    lost_defaults,
    commands,
    distinct_containers,
    # The name of a resource of Kubernetes' nodes.
    functools.partial(
        accelerators,
        pattern=r"([-a-z0-9]+\.)*[-a-z0-9]+/[-a-zA-Z0-9_.]+",
        example="nvidia.com/gpu",
    ),
    functools.partial(pipeline_root, schemes=("gs://", "s3://", "minio://")),
)
VERTEX: tuple[Rule, ...] = (
    functools.partial(accelerators, pattern=r"(NVIDIA|TPU)_[A-Z0-9_]+", example="NVIDIA_TESLA_T4"),
    functools.partial(pipeline_root, schemes=("gs://",)),
)
