"""Every command of the specification for Vertex AI, on a server that speaks Cloud Storage's API.

Vertex AI copies nothing: steps read and write gs:// themselves. Written after TFX's entrypoint and
Google's documentation; its own source is not public.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from pipeline_def.kubeflow.specification import Spec, Specification
from tests.kubeflow.conftest import compile_file
from tests.kubeflow.warm_python import warm_python
from tests.pictures import COLOURS, encode, picture, write_folder

pytestmark = pytest.mark.slow

_REPOSITORY = Path(__file__).resolve().parents[2]


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
        graph = {name: task.get("dependentTasks", []) for name, task in spec.tasks.items()}
        with warm_python(**self.env) as folder:
            for name in TopologicalSorter(graph).static_order():
                self._run_task(name, folder / "python")

    def _run_task(self, name: str, python: Path) -> None:
        given = {"inputs": self._inputs(name), "outputs": self._outputs(name)}
        # To a protobuf every number is a double.
        message = json_format.ParseDict(given, pipeline_spec_pb2.ExecutorInput())
        text = json_format.MessageToJson(message, indent=None)
        container, log = self.specification.executor(name)["container"], self.work / f"{name}.log"
        command = [str(python), *container["command"][1:], *container["args"]]
        with log.open("wb") as stream:
            status = subprocess.run(
                [argument.replace("{{$}}", text) for argument in command],
                cwd=_REPOSITORY,
                env=self.env | {one["name"]: one["value"] for one in container.get("env", [])},
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=600,
            ).returncode
        assert status == 0, f"{name}: {log.read_text()[-4000:]}"
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


def test_a_pipeline_on_cloud_storage(tmp_path: Path) -> None:
    """All steps read and write gs:// by themselves: gcsfs, TensorFlow, TFX and Beam."""
    bucket = tmp_path / "bucket"
    write_folder(bucket / "images", each=40)
    options = ("--target", "vertex", "--kubeflow.pipeline_root", "gs://bucket/root")
    network = ("--transform.size", "32", "--model.name", "cnn")
    small = (*network, "--training.epochs", "6", "--training.folds", "2")
    [spec] = compile_file(tmp_path / "pipeline.yaml", *options, *small)
    with TlsGcsServer({"bucket": bucket}) as server:
        server.write_key(tmp_path / "key.json")
        environment = {
            **server.tensorflow_environment(tmp_path),
            "GCS_READ_CACHE_BLOCK_SIZE_MB": "1",
            "FSSPEC_GS_ENDPOINT_URL": server.endpoint,
            "FSSPEC_GS_TOKEN": "anon",
            "STORAGE_EMULATOR_HOST": server.endpoint,
            "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json"),
            "GOOGLE_CLOUD_PROJECT": "test",
        }
        job = Job(Specification(spec), bucket, environment, tmp_path)
        job.run()
    assert job.tasks["Evaluator-Pusher"].outputs["blessing"]["metadata"]["blessed"] == 1
    [pushed] = (bucket / "root" / "images" / "pushed").iterdir()
    signature = tf.saved_model.load(str(pushed)).signatures["serving_default"]
    files = [encode(picture(5_000, colour=name), "JPEG") for name in sorted(COLOURS)]
    labels = signature(image_bytes=tf.constant(files))["label"].numpy().tolist()
    assert labels == [name.encode() for name in sorted(COLOURS)]
    report = job.tasks["Evaluator-Pusher"].outputs
    page = job.file(report["html"]["uri"]).read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert report["metrics"]["metadata"]["examples"] > 0


def test_googles_client_takes_the_file(tmp_path: Path) -> None:
    """As docs/how-to/kubeflow.md starts a run."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    file = tmp_path / "pipeline.yaml"
    compile_file(file, "--target", "vertex", "--kubeflow.pipeline_root", "gs://bucket/root")
    job = aiplatform.PipelineJob(
        display_name="images",
        template_path=str(file),
        project="project",
        location="europe-west4",
        parameter_values={"training_epochs": 5},
        credentials=AnonymousCredentials(),
    )
    config = job._gca_resource.runtime_config
    assert config.parameter_values["training_epochs"] == 5
    assert config.gcs_output_directory == "gs://bucket/root"
