"""Runs a compiled pipeline's own commands as Vertex AI would, after what TFX expects of it.

Vertex AI copies nothing: steps read and write gs:// themselves. Written after TFX's entrypoint and
Google's documentation; its own source is not public.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from pipeline_def.kubeflow.specification import Spec, Specification

_REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass
class Task:
    """What a task gave: artifacts as KFP's messages have them, and parameters."""

    outputs: dict[str, Spec]
    parameters: dict[str, Any]


@dataclass
class Job:
    """A pipeline job: its outputs, task by task."""

    specification: Specification
    bucket: Path
    """Local folder of the bucket `gs://bucket`."""
    environment: Mapping[str, str]
    work: Path
    """Folder for logs."""
    tasks: dict[str, Task] = field(default_factory=dict)

    def run(self) -> None:
        """Run every task in order; raise with its log if one fails."""
        spec = self.specification
        self.env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **self.environment}
        python = WarmPython(self.env)
        graph = {name: task.get("dependentTasks", []) for name, task in spec.tasks.items()}
        try:
            for name in TopologicalSorter(graph).static_order():
                self._run_task(name, python)
        finally:
            python.close()

    def _run_task(self, name: str, python: WarmPython) -> None:
        given = {"inputs": self._inputs(name), "outputs": self._outputs(name)}
        # To a protobuf every number is a double.
        message = json_format.ParseDict(given, pipeline_spec_pb2.ExecutorInput())
        text = json_format.MessageToJson(message, indent=None)
        container, log = self.specification.executor(name)["container"], self.work / f"{name}.log"
        command = [sys.executable, *container["command"][1:], *container["args"]]
        plan = {
            "command": [argument.replace("{{$}}", text) for argument in command],
            "env": self.env,
            "folder": str(_REPOSITORY),
            "log": str(log),
        }
        if python.run(plan, 600):
            raise AssertionError(f"{name}: {log.read_text()[-4000:]}")
        written = json.loads(self.file(given["outputs"]["outputFile"]).read_text())
        json_format.ParseDict(written, pipeline_spec_pb2.ExecutorOutput())
        outputs = {
            key: listed["artifacts"][0]
            | written.get("artifacts", {}).get(key, {"artifacts": [{}]})["artifacts"][0]
            for key, listed in given["outputs"]["artifacts"].items()
        }
        self.tasks[name] = Task(outputs, written.get("parameterValues", {}))

    def file(self, uri: str) -> Path:
        """Return the file of an object."""
        return self.bucket / uri.removeprefix("gs://bucket/")

    def _inputs(self, name: str) -> Spec:
        spec, artifacts = self.specification, {}
        for key, source in spec.sources(name, "artifacts").items():
            output = source["taskOutputArtifact"]
            made = self.tasks[output["producerTask"]].outputs[output["outputArtifactKey"]]
            kind = spec.definitions(name, "inputDefinitions", "artifacts")[key]["artifactType"]
            artifacts[key] = {"artifacts": [{**made, "type": kind}]}
        values = {
            key: self._value(source) for key, source in spec.sources(name, "parameters").items()
        }
        return {"parameterValues": values, "artifacts": artifacts}

    def _value(self, source: Spec) -> Any:
        match source:
            case {"componentInputParameter": name}:
                return self.specification.run_parameters[name]["defaultValue"]
            case {"taskOutputParameter": {"producerTask": task, "outputParameterKey": key}}:
                return self.tasks[task].parameters[key]
        return source["runtimeValue"]["constant"]

    def _outputs(self, name: str) -> Spec:
        pipeline = self.specification.spec["pipelineInfo"]["name"]
        root = f"gs://bucket/root/123456/{pipeline}-20261121190000/{name}_7"
        definitions = self.specification.definitions(name, "outputDefinitions", "artifacts")
        artifacts = {
            key: {"name": key, "uri": f"{root}/{key}", "type": definition["artifactType"]}
            for key, definition in definitions.items()
        }
        return {
            "artifacts": {key: {"artifacts": [artifact]} for key, artifact in artifacts.items()},
            # Nothing is local.
            "outputFile": f"{root}/executor_output.json",
        }


class WarmPython:
    """A process that has imported TFX and runs steps as forks of itself: 7 s less for each."""

    def __init__(self, env: Mapping[str, str]) -> None:
        script = Path(__file__).with_name("warm_process.py")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", str(script)],
            env={"TF_CPP_MIN_LOG_LEVEL": "1", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, plan: Mapping[str, Any], timeout: float) -> int:
        """Run a plan and return its exit status.

        Raises:
            TimeoutExpired: it took more than `timeout` seconds.
        """
        process = self._process
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{json.dumps(plan)}\n")
        process.stdin.flush()
        # Time for the imports, before the first step.
        if not select.select([process.stdout], [], [], timeout + 60)[0]:
            self.close()
            raise subprocess.TimeoutExpired(plan["command"], timeout)
        return int(process.stdout.readline())

    def close(self) -> None:
        """End the process, and with it a step that may still run."""
        self._process.kill()
        self._process.communicate()
