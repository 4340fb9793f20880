"""Runs a compiled pipeline's own commands as KFP's driver and launcher would, a pod for each.

For what KFP's own commands cannot show (tests/kubeflow/contract): the layouts of releases that no
module proxy has, and machines without Go. A comment names KFP's file where a behaviour is
surprising; its folders are in backend/src/v2.
"""

from __future__ import annotations

import datetime
import itertools
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.kubeflow.launcher.driver import (
    Release,
    Scope,
    producers,
    provision_outputs,
    resolve_inputs,
    submitted,
)
from tests.kubeflow.launcher.platform import pod_settings
from tests.kubeflow.launcher.records import Artifact, Metadata, Run, TaskRun, session_info
from tests.kubeflow.launcher.step import Launcher, Surroundings
from tests.kubeflow.launcher.store import local_path, object_path
from tests.kubeflow.launcher.values import StepError, executor_input_message
from tests.kubeflow.launcher.warm import shared_python

__all__ = ["Artifact", "Cluster", "Release", "Run", "TaskRun"]

_UNSUPPORTED = ("triggerPolicy", "parameterIterator", "artifactIterator")


@dataclass(frozen=True)
class _Job:
    """What was submitted, and what becomes of it."""

    spec: Mapping[str, Any]
    platform: Mapping[str, Any]
    run: Run

    def component(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the component of a task."""
        found: Mapping[str, Any] = self.spec["components"][task["componentRef"]["name"]]
        return found

    def keep(self, name: str, result: TaskRun, *, in_sight: bool) -> None:
        """Note a task that ran or will not; the names of all layers together must be distinct."""
        if name in (*self.run.tasks, *self.run.sub_dags):
            raise ValueError(f"KFP 2.5 mixes up two tasks named {name}")
        (self.run.tasks if in_sight else self.run.sub_dags)[name] = result

    def skip(self, name: str, task: Mapping[str, Any]) -> TaskRun:
        """Skip a task, with what is in it."""
        for key, inner in self.component(task).get("dag", {}).get("tasks", {}).items():
            self.keep(key, self.skip(key, inner), in_sight="dag" not in self.component(inner))
        return TaskRun("SKIPPED")


@dataclass
class Cluster:
    """A KFP installation: object store and ML Metadata; they live as long as it does.

    It has no cache: nothing is taken from an earlier run.
    """

    store: Path
    root: str = "minio://mlpipeline/v2/artifacts"
    release: Release = Release.V2_17
    volumes: Mapping[str, Path] = field(default_factory=dict)
    """Persistent volume claim → folder of the host."""

    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """What the image sets; variables of the specification win."""

    publish_logs: bool = True
    plain_integers: bool = True
    """Write the double 5 as Go does, 5; otherwise 5.0, which protobuf's readers make of it."""

    timeout: float = 600.0
    """Seconds for a step."""

    def __post_init__(self) -> None:
        if local_path(self.root) is None:
            raise ValueError(f"unsupported Cloud bucket: {self.root}")
        self._metadata = Metadata(session_info(self.root, self.release))
        self._executions = itertools.count(1)

    @property
    def artifacts(self) -> dict[int, Artifact]:
        """Every artifact that was ever recorded, by its id."""
        return self._metadata.artifacts

    def files(self, uri: str) -> Path:
        """Say where the store keeps `uri`: a file, a folder, or nothing."""
        return object_path(self.store, uri)

    def run(self, spec_path: Path | str, parameters: Mapping[str, Any] | None = None) -> Run:
        """Run the pipeline; raise ValueError where the API server would refuse it."""
        spec, platform = _load(Path(spec_path))
        name, run_id = spec["pipelineInfo"]["name"], str(uuid.uuid4())
        job = _Job(spec, platform, Run(run_id, f"{self.root}/{name}/{run_id}", {}))
        values = submitted(spec["root"], parameters or {})
        self._run_layer(spec["root"], job, Scope(values, self._constants(name, run_id), {}))
        return job.run

    def _run_layer(self, layer: Mapping[str, Any], job: _Job, scope: Scope) -> None:
        """Run the tasks of the root or of a sub-DAG; what becomes of them is in `scope.tasks`."""
        for key, task in _ordered(layer["dag"]["tasks"]):
            start = time.monotonic()
            sub_dag = "dag" in job.component(task)
            if {scope.tasks[name].state for name in producers(task)} & {"FAILED", "SKIPPED"}:
                result = job.skip(key, task)
            elif sub_dag:
                result = self._run_sub_dag(key, task, job, scope)
            else:
                result = self._run_task(key, task, job, scope)
            result.seconds = time.monotonic() - start
            job.keep(key, result, in_sight=not sub_dag)
            # 2.5 finds a producer by the name that people see (driver/driver.go).
            known = task["taskInfo"]["name"] if self.release is Release.V2_5 else key
            scope.tasks[known] = result

    def _run_sub_dag(self, name: str, task: Mapping[str, Any], job: _Job, above: Scope) -> TaskRun:
        """Run the tasks of a sub-DAG, which gets its inputs as a step does (driver/dag.go)."""
        component, result = job.component(task), TaskRun("FAILED")
        constants = {**above.constants, "{{$.pipeline_task_uuid}}": str(next(self._executions))}
        try:
            inputs = resolve_inputs(task, component, above.of_task(name))
        except StepError as error:
            result.log = f"{error}\n"
            return result
        scope = Scope(inputs["parameterValues"], constants, {}, inputs["artifacts"])
        self._run_layer(component, job, scope)
        if all(one.state == "SUCCEEDED" for one in scope.tasks.values()):
            result.state = "SUCCEEDED"
        outputs = component["dag"].get("outputs", {}).get("artifacts", {})
        for key, output in outputs.items():
            [selector] = output["artifactSelectors"]
            made = scope.tasks[selector["producerSubtask"]].outputs
            if selector["outputArtifactKey"] in made:
                result.outputs[key] = made[selector["outputArtifactKey"]]
        return result

    def _constants(self, name: str, run_id: str) -> dict[str, str]:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        constants = {
            "{{$.pipeline_job_name}}": f"{name} {now}",
            "{{$.pipeline_job_resource_name}}": f"{name}-{run_id[:5]}",
            "{{$.pipeline_job_uuid}}": run_id,
            # The same for all tasks: driver/resolve.go takes the id of the DAG.
            "{{$.pipeline_task_uuid}}": str(next(self._executions)),
        }
        if self.release is Release.V2_17:
            constants["{{$.pipeline_job_create_time_utc}}"] = now
            constants["{{$.pipeline_job_schedule_time_utc}}"] = now
        return constants

    def _run_task(self, name: str, task: Mapping[str, Any], job: _Job, scope: Scope) -> TaskRun:
        spec, run_root = job.spec, job.run.root
        component, container, kubernetes = _implementation(task, spec, job.platform)
        result = TaskRun("FAILED")
        next(self._executions)
        # The name for people was part of the URI once (driver/driver.go of 2.5).
        name = task["taskInfo"]["name"] if self.release is Release.V2_5 else name
        task_root = f"{run_root}/{name}/{uuid.uuid4()}"
        scope = scope.of_task(name)
        try:
            result.executor_input = executor_input_message(
                resolve_inputs(task, component, scope),
                provision_outputs(component, task_root, self.release, logs=self.publish_logs),
            )
            settings = pod_settings(container, kubernetes, self.volumes, self.secrets, scope)
            around = Surroundings(
                self.release,
                self.store,
                self._metadata,
                self.env,
                self.plain_integers,
                self.timeout,
                shared_python(),
            )
            Launcher(around, component, container, settings, run_root, result).run()
            result.state = "SUCCEEDED"
        except StepError as error:
            result.log += f"{error}\n"
        return result


def _load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    specs = [document for document in documents if "platforms" not in document]
    platforms = [document for document in documents if "platforms" in document]
    try:
        message = json_format.ParseDict(specs[0], pipeline_spec_pb2.PipelineSpec())
    except json_format.ParseError as error:
        raise ValueError(f"invalid v2 pipeline spec: {error}") from error
    return json_format.MessageToDict(message), platforms[0] if platforms else {}


def _ordered(tasks: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    waiting = dict(tasks)
    while waiting:
        ready = [key for key, task in waiting.items() if not {*producers(task)} & {*waiting}]
        if not ready:
            raise ValueError(f"the tasks wait for each other: {', '.join(waiting)}")
        yield ready[0], waiting.pop(ready[0])


def _implementation(
    task: Mapping[str, Any], spec: Mapping[str, Any], platform: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Find the component, the container and what Kubernetes is told of it."""
    for key in _UNSUPPORTED:
        if key in task:
            raise NotImplementedError(key)
    if not task.get("taskInfo", {}).get("name"):
        raise ValueError("task spec is required: taskInfo.name is empty")
    component = spec["components"][task["componentRef"]["name"]]
    label = component["executorLabel"]
    executor = spec["deploymentSpec"]["executors"][label]
    if "container" not in executor:
        raise NotImplementedError(f"executor: {', '.join(executor)}")
    kubernetes = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {})
    return component, executor["container"], kubernetes.get("executors", {}).get(label, {})
