"""Whole compiled pipelines, run by Kubeflow's SDK on this machine (`kfp.local`).

The SDK resolves inputs and reads outputs as KFP's driver and launcher do, artifact types lost
included; each step is a process. For Vertex AI all of it is on a server that speaks Cloud Storage's
API: written after TFX's entrypoint and Google's documentation, as its own source is not public.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import json_format
from kfp.local import config as local_config
from kfp.local import (
    executor_input_utils,
    executor_output_utils,
    pipeline_orchestrator,
    subprocess_task_handler,
)
from kfp.local.status import Status
from kfp.local.task_handler_interface import ITaskHandler
from kfp.pipeline_spec import pipeline_spec_pb2

from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from pipeline_def.kubeflow.specification import LOOKUPS, Spec, Specification, pod_of
from tests.kubeflow.conftest import compile_file
from tests.nodes import NODES
from tests.pictures import COLOURS, encode, picture, write_folder

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
LAST = "Evaluator-Pusher"
SMALL = (
    *("--transform.size", "32", "--model.name", "cnn", "--training.epochs", "6"),
    *("--training.folds", "0"),
)


@dataclass
class Run:
    """A run of a specification: where it writes, and its steps' environment."""

    spec: Spec
    root: str
    name: str
    """Folder of the run below the pipeline root, in the layout of the target."""
    folder: Path
    """Local folder of the pipeline root."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run all tasks; raise `RuntimeError` after one that fails."""
        run = self

        class Container(ITaskHandler):
            def __init__(self, image: str, full_command: list[str], **_: Any) -> None:
                self.command = full_command

            def run(self) -> Status:
                return run.run_step(self.command)

        def read_output(executor_output_path: str) -> pipeline_spec_pb2.ExecutorOutput:
            text = run.file(executor_output_path).read_text()
            return json_format.Parse(text, pipeline_spec_pb2.ExecutorOutput())

        patch = monkeypatch.setattr
        patch(subprocess_task_handler, "SubprocessTaskHandler", Container)
        patch(executor_output_utils, "load_executor_output", read_output)
        patch(executor_input_utils, "get_local_pipeline_resource_name", lambda _: self.name)
        patch(executor_input_utils, "get_local_task_resource_name", lambda name: name)
        runner = local_config.SubprocessRunner(use_venv=False)
        local_config.LocalExecutionConfig(runner, self.root, raise_on_error=True)
        message = json_format.ParseDict(self.spec, pipeline_spec_pb2.PipelineSpec())
        pipeline_orchestrator.run_local_pipeline(message, {})

    def run_step(self, command: list[str]) -> Status:
        name = command[command.index("--step") + 1]
        variables = Specification(self.spec).container(name).get("env", [])
        done = subprocess.run(
            [sys.executable, *command[1:]],
            cwd=REPOSITORY,
            env={
                **{key: os.environ[key] for key in ("PATH", "HOME")},
                **self.environment,
                **{var["name"]: var["value"] for var in variables},
            },
            stderr=subprocess.STDOUT,
            timeout=600,
        )
        return Status.FAILURE if done.returncode else Status.SUCCESS

    def file(self, uri: str) -> Path:
        """Return the local file of a URI below the pipeline root."""
        return self.folder / uri.removeprefix(f"{self.root}/")

    def outputs(self, task: str) -> dict[str, Any]:
        """Return the first artifact of each output of a task."""
        written = self.folder / self.name / task / "executor_output.json"
        artifacts = json.loads(written.read_text())["artifacts"]
        return {name: listed["artifacts"][0] for name, listed in artifacts.items()}

    def check(self, pushed: Path) -> None:
        """Check what the run has evaluated, drawn and pushed."""
        outputs = self.outputs(LAST)
        assert outputs["blessing"]["metadata"]["blessed"] == 1
        metrics = json.loads(self.file(outputs["metrics"]["uri"]).read_text())["metrics"]
        accuracy = outputs["metrics"]["metadata"]["accuracy"]
        assert metrics["accuracy"]["value"] == accuracy > 0.9
        page = self.file(outputs["html"]["uri"]).read_text()
        assert page.lstrip().lower().startswith("<!doctype html>")
        matrix = outputs["classification"]["metadata"]["confusionMatrix"]
        assert matrix["annotationSpecs"][0]["displayName"] == sorted(COLOURS)[0]
        [model] = pushed.glob("[0-9]*")
        assert (model / "MODEL_CARD.md").exists()
        signature = tf.saved_model.load(str(model)).signatures["serving_default"]
        files = [encode(picture(5_000, colour=name), "JPEG") for name in sorted(COLOURS)]
        labels = signature(image_bytes=tf.constant(files))["label"].numpy().tolist()
        assert labels == [name.encode() for name in sorted(COLOURS)]


def test_a_run_on_a_volume_and_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    images, root = write_folder(tmp_path / "images", each=60), tmp_path / "root"
    steps = ("--kubeflow.steps", f"{{all: {{volumes: {{images: {images}}}}}}}")
    spec, _ = compile_file(tmp_path / "pipeline.yaml", "--data", str(images), *steps, *SMALL)
    first = Run(spec, str(root), "images/f9cb95c6-c67e-4910-848e-a32d34169a24", root)
    first.start(monkeypatch)
    first.check(root / "images" / "pushed")
    # From it the lookup of the next run knows which model is to be there.
    [model], [note] = (
        [*(root / "images" / name).glob("[0-9a-f]*")] for name in ("pushed", "candidates")
    )
    assert note.read_text().split()[1:] == [model.name]
    logs = {path.stem for path in (root / first.name / "logs").iterdir()}
    assert logs == {LOOKUPS, *map(pod_of, NODES)}
    for number in range(5):
        (images / "red" / f"broken-{number}.jpeg").write_bytes(b"no image")
    second = Run(spec, str(root), "images/0b6a3c1e-0000-4000-8000-000000000000", root)
    capfd.readouterr()
    with pytest.raises(RuntimeError, match="ImageExampleGen"):
        second.start(monkeypatch)
    sentence = f"ImageExampleGen: error: 5 of 185 files in {images} are not usable"
    kept = (root / second.name / "logs" / "ImageExampleGen.txt").read_text()
    assert (sentence in kept, sentence in capfd.readouterr().out) == (True, True)
    assert "Traceback" not in kept


@pytest.mark.weekly
def test_a_run_on_cloud_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vertex AI copies nothing: gcsfs, TensorFlow, TFX and Beam read and write gs:// themselves."""
    bucket = tmp_path / "bucket"
    write_folder(bucket / "images", each=40)
    options = ("--target", "vertex", "--kubeflow.pipeline_root", "gs://bucket/root")
    [spec] = compile_file(tmp_path / "pipeline.yaml", *options, *SMALL)
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
        name = "123456/images-20261121190000"
        run = Run(spec, "gs://bucket/root", name, bucket / "root", environment)
        run.start(monkeypatch)
    run.check(bucket / "root" / "images" / "pushed")


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
