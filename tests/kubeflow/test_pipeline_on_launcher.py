"""Every command of the specification, run as KFP 2.17 and 2.5 would run it.

Driver, launcher and ML Metadata are emulated (tests/kubeflow/launcher); commands, images, models
and the S3 server are real. Not a cluster: no scheduling, no pods, no network between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import yaml

import kfp_runner
from components.storage.object_store import open_store
from tests.kubeflow.launcher import Cluster, Release, Run
from tests.nodes import NODES
from tests.pictures import COLOURS, encode, picture, write_folder
from tests.storage.s3_server import ACCESS_KEY, SECRET_KEY, serve_s3

pytestmark = pytest.mark.slow

BUCKET = "mlpipeline"
PUSHED = f"{BUCKET}/v2/artifacts/images/pushed"
LOOKUPS = {"ImageExampleGen-lookup", "ExampleValidator-lookup", "BaselineFinder-lookup"}
SECRETS = {"mlpipeline-minio-artifact": {"accesskey": ACCESS_KEY, "secretkey": SECRET_KEY}}
STEPS = "{all: {volumes: {images: /mnt/images}, cpu: 2}}"


@dataclass
class Kubeflow:
    """A compiled pipeline, the images it reads, and where it runs."""

    spec: Path
    images: Path
    cluster: Cluster

    def run(self, **parameters: Any) -> Run:
        run = self.cluster.run(self.spec, parameters)
        for name, task in run.tasks.items():
            assert task.state == "SUCCEEDED", f"{name}: {task.log[-3000:]}"
        return run


def compile_for_cluster(folder: Path, *argv: str) -> Path:
    """Compile a small pipeline whose images lie on a volume."""
    file = folder / "pipeline.yaml"
    options = ("--data", "/mnt/images", "--kubeflow.steps", STEPS, "--output", str(file))
    small = ("--transform.size", "32", "--model.name", "cnn", "--training.epochs", "8")
    assert kfp_runner.main(["compile", "--image", "i:1", *options, *small, *argv]) == 0
    return file


@pytest.fixture
def kubeflow(tmp_path: Path) -> Iterator[Kubeflow]:
    images = write_folder(tmp_path / "images", each=60)
    with serve_s3(BUCKET) as endpoint:
        cluster = Cluster(
            tmp_path / "store",
            volumes={"images": images},
            secrets=SECRETS,
            env={"AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true"},
        )
        yield Kubeflow(compile_for_cluster(tmp_path), images, cluster)


def states(run: Run, state: str) -> set[str]:
    return {name for name, task in run.tasks.items() if task.state == state}


def versions() -> list[str]:
    fs, _ = open_store(f"minio://{PUSHED}")
    return sorted(path.rsplit("/", 1)[-1] for path in fs.ls(PUSHED))


def serve(version: str, folder: Path) -> list[bytes]:
    """Download a pushed model and ask it about a picture of each colour."""
    fs, _ = open_store(f"minio://{PUSHED}")
    fs.get(f"{PUSHED}/{version}", str(folder), recursive=True)
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    files = [encode(picture(5_000, colour=name), "JPEG") for name in sorted(COLOURS)]
    labels: list[bytes] = signature(image_bytes=tf.constant(files))["label"].numpy().tolist()
    return labels


def test_a_pipeline_on_kubeflow(kubeflow: Kubeflow, tmp_path: Path) -> None:
    """More runs, with the cache, are under KFP's own commands: test_contract.py."""
    first = kubeflow.run()
    assert set(first.tasks) == {*NODES, *LOOKUPS}
    nothing = first.tasks["BaselineFinder"].outputs["baseline"]
    assert nothing.metadata["found"] == 0
    assert any(kubeflow.cluster.files(nothing.uri).iterdir())
    blessing = first.tasks["Evaluator"].outputs["blessing"].metadata
    assert blessing["blessed"] == 1
    [version] = versions()
    assert open_store(f"minio://{PUSHED}")[0].exists(f"{PUSHED}/{version}/MODEL_CARD.md")
    assert serve(version, tmp_path / "model") == [name.encode() for name in sorted(COLOURS)]
    examples = first.tasks["ImageExampleGen"].outputs["examples"].metadata
    resolved = yaml.safe_load(first.tasks["ImageExampleGen-lookup"].parameters["resolved"])
    assert examples["input_fingerprint"] == resolved["input_fingerprint"]
    assert examples["span"] == 0
    assert resolved["listing"].startswith(f"minio://{BUCKET}/v2/artifacts/images/listings/")
    check_what_the_interface_shows(kubeflow, first)


def check_what_the_interface_shows(kubeflow: Kubeflow, run: Run) -> None:
    """Kubeflow draws artifacts by their types, from their metadata and files."""
    outputs = run.tasks["ImageReport"].outputs
    assert {name: artifact.type for name, artifact in outputs.items() if "logs" not in name} == {
        "html": "system.HTML",
        "metrics": "system.Metrics",
        "classification": "system.ClassificationMetrics",
        "card": "system.Markdown",
    }
    page = kubeflow.cluster.files(outputs["html"].uri)
    assert page.is_file()
    assert page.read_text().count("data:image/jpeg") >= 3 * 4
    assert kubeflow.cluster.files(outputs["card"].uri).read_text().startswith("---")
    numbers = json.loads(kubeflow.cluster.files(outputs["metrics"].uri).read_text())
    assert numbers["metrics"]["accuracy"]["value"] == outputs["metrics"].metadata["accuracy"]
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    assert outputs["metrics"].metadata["accuracy"] > 0.9
    assert "tfx_version" not in outputs["metrics"].metadata
    matrix = outputs["classification"].metadata["confusionMatrix"]["struct"]
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == sorted(COLOURS)
    counts = sum(sum(row["row"]) for row in matrix["rows"])
    assert counts == outputs["metrics"].metadata["examples"]
    points = outputs["classification"].metadata["confidenceMetrics"]["list"]
    assert set(points[0]) == {"confidenceThreshold", "recall", "falsePositiveRate"}


def test_an_older_release_and_models_on_a_volume(tmp_path: Path) -> None:
    """KFP 2.5 lays files out differently; and a volume needs no object store."""
    images = write_folder(tmp_path / "images", each=30)
    (tmp_path / "models").mkdir()
    spec = compile_for_cluster(
        tmp_path,
        "--kubeflow.steps",
        "{all: {volumes: {images: /mnt/images, models: /mnt/models}}}",
        "--kubeflow.storage",
        "/mnt/models",
    )
    cluster = Cluster(
        tmp_path / "store",
        root="gs://bucket/root",
        release=Release.V2_5,
        volumes={"images": images, "models": tmp_path / "models"},
        plain_integers=False,
    )
    run = Kubeflow(spec, images, cluster).run(training_epochs=2)
    assert set(run.tasks) == {*NODES, *LOOKUPS}
    assert (tmp_path / "models" / "checkpoints").is_dir()
    assert len(list((tmp_path / "models" / "listings").iterdir())) == 1
    blessed = run.tasks["Evaluator"].outputs["blessing"].metadata["blessed"]
    assert len(list((tmp_path / "models").glob("pushed/*/saved_model.pb"))) == blessed


def test_a_users_mistake_is_one_sentence_in_the_log(tmp_path: Path) -> None:
    images = tmp_path / "images"
    (images / "only").mkdir(parents=True)
    cluster = Cluster(tmp_path / "store", volumes={"images": images}, secrets=SECRETS)
    run = cluster.run(compile_for_cluster(tmp_path), {})
    failed = run.tasks["ImageExampleGen-lookup"]
    assert failed.state == "FAILED"
    assert "ImageExampleGen-lookup: error: " in failed.log
    assert "Traceback" not in failed.log
    assert states(run, "SKIPPED") == set(run.tasks) - {"ImageExampleGen-lookup"}
