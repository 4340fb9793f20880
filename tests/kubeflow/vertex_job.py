"""Runs a compiled pipeline's own commands as Vertex AI would, after what TFX expects of it.

Vertex AI copies nothing: steps read and write gs:// themselves. Written after TFX's entrypoint and
Google's documentation; its own source is not public.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

REPOSITORY = Path(__file__).resolve().parents[2]

Spec = dict[str, Any]


@dataclass
class Job:
    """A pipeline job: its outputs, task by task."""

    spec: Spec
    bucket: Path
    """Local folder of the bucket `gs://bucket`."""
    environment: Mapping[str, str]
    outputs: dict[str, Spec] = field(default_factory=dict)
    """Task → the executor output that it wrote."""
    logs: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Run every task in order; raise with its log if one fails."""
        tasks = self.spec["root"]["dag"]["tasks"]
        graph = {name: task.get("dependentTasks", []) for name, task in tasks.items()}
        for name in TopologicalSorter(graph).static_order():
            self._run_task(name, tasks[name])

    def _run_task(self, name: str, task: Spec) -> None:
        component = self.spec["components"][task["componentRef"]["name"]]
        executor = self.spec["deploymentSpec"]["executors"][component["executorLabel"]]
        given = self._executor_input(name, task, component)
        message = json_format.ParseDict(given, pipeline_spec_pb2.ExecutorInput())
        text = json_format.MessageToJson(message, indent=None)
        container = executor["container"]
        command = [sys.executable, *container["command"][1:], *container["args"]]
        done = subprocess.run(
            [argument.replace("{{$}}", text) for argument in command],
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.logs[name] = done.stdout
        if done.returncode:
            raise AssertionError(f"{name}: {done.stdout[-4000:]}")
        written = self.file(given["outputs"]["outputFile"]).read_text()
        json_format.Parse(written, pipeline_spec_pb2.ExecutorOutput())
        self.outputs[name] = {"given": given["outputs"]["artifacts"], **json.loads(written)}

    def file(self, uri: str) -> Path:
        """Return the file of an object."""
        return self.bucket / uri.removeprefix("gs://bucket/")

    def artifact(self, task: str, key: str) -> Spec:
        """Return an output as the next task gets it: what was written over what was given."""
        [given] = self.outputs[task]["given"][key]["artifacts"]
        written = self.outputs[task].get("artifacts", {}).get(key, {"artifacts": [{}]})
        return {**given, **written["artifacts"][0], "type": given["type"]}

    def _executor_input(self, name: str, task: Spec, component: Spec) -> Spec:
        root = (
            f"gs://bucket/root/123456/{self.spec['pipelineInfo']['name']}-20261121190000/{name}_7"
        )
        produced = component.get("outputDefinitions", {})
        outputs = {
            key: {
                "artifacts": [
                    {
                        "name": f"projects/1/artifacts/{name}-{key}",
                        "uri": f"{root}/{key}",
                        "type": artifact["artifactType"],
                    }
                ]
            }
            for key, artifact in produced.get("artifacts", {}).items()
        }
        artifacts = {
            key: {"artifacts": [self.artifact(source["producerTask"], source["outputArtifactKey"])]}
            for key, value in task.get("inputs", {}).get("artifacts", {}).items()
            for source in [value["taskOutputArtifact"]]
        }
        return {
            "inputs": {"artifacts": artifacts, "parameterValues": dict(self._parameters(task))},
            "outputs": {
                "artifacts": outputs,
                "parameters": {
                    key: {"outputFile": f"{root}/{key}"} for key in produced.get("parameters", {})
                },
                "outputFile": f"{root}/executor_output.json",
            },
        }

    def _parameters(self, task: Spec) -> Iterator[tuple[str, Any]]:
        defined = self.spec["root"]["inputDefinitions"]["parameters"]
        for key, source in task.get("inputs", {}).get("parameters", {}).items():
            if "runtimeValue" in source:
                yield key, source["runtimeValue"]["constant"]
            elif "componentInputParameter" in source:
                yield key, defined[source["componentInputParameter"]]["defaultValue"]
            else:
                output = source["taskOutputParameter"]
                values = self.outputs[output["producerTask"]]["parameterValues"]
                yield key, values[output["outputParameterKey"]]
