"""Rules on the shape of a specification: documents, names, and how tasks hang together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pipeline_def.kubeflow.check.spec_view import Problem, SpecView

_SCHEMA_VERSION = "2.1.0"

_TFX_DAG = "tfx-dag"

# Both become parts of names of Kubernetes objects.
_PIPELINE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,126}[a-z0-9])?")
_TASK_NAME = re.compile(r"[a-zA-Z][-a-zA-Z0-9]{0,120}")


def check_documents(documents: list[Any], target: str) -> Iterator[Problem]:
    """Yield what keeps the file from being read as a specification at all."""
    if not documents or not isinstance(documents[0], dict):
        yield Problem("empty", "The file holds no specification: compile it again.")
        return
    if "pipelineSpec" in documents[0]:
        yield Problem(
            "json-wrapper",
            "The file is a PipelineJob, with the specification inside: take what is under "
            "pipelineSpec; job settings are given when a run is started.",
        )
        return
    if len(documents) > 2:
        yield Problem("documents", "The file has more than two YAML documents: keep two.")
    if len(documents) > 1 and set(documents[1]) != {"platforms"}:
        yield Problem("documents", "The second document must have the key `platforms` only.")
    if len(documents) > 1 and target == "vertex":
        yield Problem(
            "platform",
            "Vertex AI reads no platform document: remove node_selector, tolerations, secrets, "
            "volumes and shared_memory from kubeflow.steps.",
        )
    yield from _check_fields(documents[0])


def _check_fields(spec: dict[str, Any]) -> Iterator[Problem]:
    """Yield fields and values that no message of KFP has.

    The backend discards unknown ones below deploymentSpec without a word, and refuses others.
    """
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    for part, message in (
        (spec, pipeline_spec_pb2.PipelineSpec()),
        (spec.get("deploymentSpec", {}), pipeline_spec_pb2.PipelineDeploymentConfig()),
    ):
        try:
            json_format.ParseDict(part, message)
        except json_format.ParseError as error:
            reason = str(error).splitlines()[0].rstrip(".")
            yield Problem("fields", f"It is no PipelineSpec: {reason}. Correct or remove it.")
            return


def schema_version(view: SpecView) -> Iterator[Problem]:
    """Open-source Kubeflow takes 2.1.0 only; TFX's default is 2.0.0."""
    version = view.spec.get("schemaVersion")
    if version != _SCHEMA_VERSION and view.target == "oss":
        yield Problem(
            "schema-version",
            f"schemaVersion is {version!r}: compile with use_pipeline_spec_2_1, for 2.1.0.",
        )


def pipeline_name(view: SpecView) -> Iterator[Problem]:
    """The name of the pipeline is part of names and URIs."""
    name = view.spec.get("pipelineInfo", {}).get("name", "")
    if not _PIPELINE_NAME.fullmatch(name):
        yield Problem(
            "pipeline-name",
            f"The pipeline is named {name!r}: use up to 128 of a-z, 0-9 and -, which is neither "
            "first nor last.",
        )


def task_names(view: SpecView) -> Iterator[Problem]:
    """Argo, which runs the tasks, takes no other characters."""
    for name in sorted(view.tasks):
        if not _TASK_NAME.fullmatch(name) and view.target == "oss":
            yield Problem(
                "task-name",
                f"The task {name!r} has a name that Argo refuses: use with_id() with up to 121 "
                "letters, digits and -, a letter first.",
            )
    if not view.tasks:
        yield Problem("no-tasks", "The pipeline has no tasks: add components.")


def references(view: SpecView) -> Iterator[Problem]:
    """Every task has a component, and every component an executor."""
    for task, definition in sorted(view.tasks.items()):
        name = definition.get("componentRef", {}).get("name")
        if name not in view.spec.get("components", {}):
            yield Problem("component", f"The task {task} refers to no component ({name!r}).")
        elif "dag" not in view.component(task) and not view.executor(task):
            label = view.component(task).get("executorLabel")
            yield Problem("executor", f"The component of {task} refers to no executor ({label!r}).")
        if not definition.get("taskInfo", {}).get("name"):
            yield Problem("task-info", f"The task {task} has no taskInfo.name: the driver stops.")


def order(view: SpecView) -> Iterator[Problem]:
    """Tasks wait for tasks that exist, and never for each other."""
    graph = {}
    for task, definition in view.tasks.items():
        graph[task] = set(definition.get("dependentTasks", []))
        for missing in sorted(graph[task] - set(view.tasks)):
            yield Problem(
                "dependency", f"The task {task} waits for {missing}, which does not exist: add it."
            )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " → ".join(error.args[1])
        yield Problem("cycle", f"Tasks wait for each other ({circle}): break the circle.")


def resolvers(view: SpecView) -> Iterator[Problem]:
    """Open-source Kubeflow: "resolver executors not implemented"."""
    for task in sorted(view.tasks):
        if "resolver" in view.executor(task) and view.target == "oss":
            yield Problem(
                "resolver",
                f"{task} is a Resolver, which Kubeflow Pipelines has not got: find the artifact in "
                "a component, as BaselineFinder does.",
            )
        if "customJob" in view.executor(task) and view.target == "oss":
            yield Problem(
                "custom-job", f"{task} is a custom job of Vertex AI: make it a container."
            )


def importers(view: SpecView) -> Iterator[Problem]:
    """Open-source Kubeflow takes no conditions on importers, and URIs from two sources only."""
    for task, definition in sorted(view.tasks.items()):
        importer = view.executor(task).get("importer")
        if importer is None or view.target != "oss":
            continue
        if definition.get("triggerPolicy", {}).get("condition"):
            yield Problem(
                "importer-condition",
                f"The importer {task} has a condition, which Kubeflow Pipelines refuses: move it "
                "out of the Cond block.",
            )
        uri = importer.get("artifactUri", {})
        given = definition.get("inputs", {}).get("parameters", {})
        source = given.get(uri.get("runtimeParameter"), {})
        if "runtimeParameter" in uri and "componentInputParameter" not in source:
            yield Problem(
                "importer-parameter",
                f"The importer {task} takes its URI from {uri['runtimeParameter']!r}, which is no "
                "input that comes from the run: bind it to a parameter of the run.",
            )
        elif "runtimeParameter" not in uri and "://" not in str(uri.get("constant", "")):
            yield Problem(
                "importer-uri",
                f"The importer {task} has the URI {uri.get('constant')!r}: it needs a scheme, such "
                "as gs://.",
            )


def exit_handlers(view: SpecView) -> Iterator[Problem]:
    """TFX wraps all other tasks in a nested DAG, and hands it no parameters of the run."""
    if _TFX_DAG in view.tasks and view.target == "oss":
        yield Problem(
            "exit-handler",
            f"The pipeline has an exit handler as TFX compiles it: the tasks in {_TFX_DAG} get no "
            "parameters of the run. Watch the run from outside: `kfp_runner.py run --wait`.",
        )


RULES = (
    schema_version,
    pipeline_name,
    task_names,
    references,
    order,
    resolvers,
    importers,
    exit_handlers,
)
