"""Runs a compiled pipeline's own commands as Vertex AI would, after what TFX expects of it.

Vertex AI copies nothing: steps read and write gs:// themselves. Written after TFX's entrypoint and
Google's documentation; its own source is not public.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from pipeline_def.kubeflow.specification import Spec, Specification
from tests.kubeflow.launcher.driver import (
    Release,
    Scope,
    provision_outputs,
    resolve_inputs,
    submitted,
)
from tests.kubeflow.launcher.pod import REPOSITORY
from tests.kubeflow.launcher.records import Artifact, TaskRun
from tests.kubeflow.launcher.warm import WarmPython


@dataclass
class Job:
    """A pipeline job: its outputs, task by task."""

    specification: Specification
    bucket: Path
    """Local folder of the bucket `gs://bucket`."""
    environment: Mapping[str, str]
    work: Path
    """Folder for logs and plans."""
    tasks: dict[str, TaskRun] = field(default_factory=dict)

    def run(self) -> None:
        """Run every task in order; raise with its log if one fails."""
        spec = self.specification
        self.scope = Scope(submitted(spec.spec["root"], {}), {}, self.tasks)
        self.env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **self.environment}
        python = WarmPython(self.env)
        graph = {name: task.get("dependentTasks", []) for name, task in spec.tasks.items()}
        try:
            for name in TopologicalSorter(graph).static_order():
                self._run_task(name, python)
        finally:
            python.close()

    def _run_task(self, name: str, python: WarmPython) -> None:
        given = self._executor_input(name)
        message = json_format.ParseDict(given, pipeline_spec_pb2.ExecutorInput())
        text = json_format.MessageToJson(message, indent=None)
        container, log = self.specification.executor(name)["container"], self.work / f"{name}.log"
        command = [sys.executable, *container["command"][1:], *container["args"]]
        plan = {
            "command": [argument.replace("{{$}}", text) for argument in command],
            "env": self.env,
            "folder": str(REPOSITORY),
            "log": str(log),
        }
        if python.run(plan, self.work / "plan.json", 600):
            raise AssertionError(f"{name}: {log.read_text()[-4000:]}")
        written = self.file(given["outputs"]["outputFile"]).read_text()
        json_format.Parse(written, pipeline_spec_pb2.ExecutorOutput())
        self.tasks[name] = _task_run(given, json.loads(written))

    def file(self, uri: str) -> Path:
        """Return the file of an object."""
        return self.bucket / uri.removeprefix("gs://bucket/")

    def _executor_input(self, name: str) -> Spec:
        task, component = self.specification.tasks[name], self.specification.component(name)
        pipeline = self.specification.spec["pipelineInfo"]["name"]
        root = f"gs://bucket/root/123456/{pipeline}-20261121190000/{name}_7"
        outputs = provision_outputs(component, root, Release.V2_17, logs=False)
        # Nothing is local.
        outputs["outputFile"] = f"{root}/executor_output.json"
        for key, parameter in outputs["parameters"].items():
            parameter["outputFile"] = f"{root}/{key}"
        inputs = resolve_inputs(task, component, self.scope)
        for key, listed in inputs["artifacts"].items():
            definitions = self.specification.definitions(name, "inputDefinitions", "artifacts")
            listed["artifacts"][0]["type"] = definitions[key]["artifactType"]
        return {"inputs": inputs, "outputs": outputs}


def _task_run(given: Spec, written: Spec) -> TaskRun:
    """Keep what was written over what was given, for the tasks after it."""
    run = TaskRun("SUCCEEDED", parameters=written.get("parameterValues", {}))
    for number, (key, listed) in enumerate(given["outputs"]["artifacts"].items()):
        own = written.get("artifacts", {}).get(key, {"artifacts": [{}]})["artifacts"][0]
        artifact = {**listed["artifacts"][0], **own}
        run.outputs[key] = Artifact(number, "", artifact["uri"], artifact.get("metadata", {}))
    return run
