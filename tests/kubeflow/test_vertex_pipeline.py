"""Every command of the specification for Vertex AI, on a server that speaks Cloud Storage's API."""

from pathlib import Path

import pytest
import tensorflow as tf
import yaml

import kfp_runner
from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from pipeline_def.kubeflow.specification import Specification
from tests.kubeflow.vertex_job import Job
from tests.pictures import COLOURS, encode, picture, write_folder

pytestmark = pytest.mark.slow


def test_a_pipeline_on_cloud_storage(tmp_path: Path) -> None:
    """All steps read and write gs:// by themselves: gcsfs, TensorFlow, TFX and Beam."""
    bucket = tmp_path / "bucket"
    write_folder(bucket / "images", each=40)
    file = tmp_path / "pipeline.yaml"
    options = ("--target", "vertex", "--kubeflow.pipeline_root", "gs://bucket/root")
    network = ("--transform.size", "32", "--model.name", "cnn")
    small = (*network, "--training.epochs", "6", "--training.folds", "2")
    images = ("--image", "i:1", "--data", "gs://bucket/images", "--output", str(file))
    assert kfp_runner.main(["compile", *options, *small, *images]) == 0
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
        specification = Specification(yaml.safe_load(file.read_text()))
        job = Job(specification, bucket, environment, tmp_path)
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
