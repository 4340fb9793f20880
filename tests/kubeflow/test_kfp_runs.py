"""The compiled pipeline under KFP's own compiler, driver and launcher, where Go can build them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import kfp_runner
from components.storage.object_store import open_store
from e2e.store import Store
from pipeline_def.kubeflow.specification import LOOKUPS, pod_of
from tests.kubeflow import kfp_backend
from tests.kubeflow.kfp_backend import installation
from tests.kubeflow.kfp_backend.pod import has_namespaces
from tests.missing import lack
from tests.nodes import NODES
from tests.pictures import COLOURS, encode, picture, write_folder
from tests.storage.s3_server import ACCESS_KEY, SECRET_KEY, serve_s3

# One process, which builds KFP's packages once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kfp")]

BUCKET = "mlpipeline"
SECRETS = {"mlpipeline-minio-artifact": {"accesskey": ACCESS_KEY, "secretkey": SECRET_KEY}}
TASKS = {*map(pod_of, NODES), LOOKUPS}
BEFORE_TRAINING = {*map(pod_of, NODES[: NODES.index("Trainer")])}
STEPS = "{all: {volumes: {images: /mnt/images}, cpu: 2}, ImageExampleGen: {retries: 1}}"
# All that driver and launcher, and our own steps, want of Kubernetes.
ASKED = {"configmaps/kfp-launcher", "secrets/mlpipeline-minio-artifact"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "images", each=60)


@pytest.fixture
def kubeflow(tmp_path: Path, images: Path) -> Iterator[installation.Installation]:
    if not has_namespaces():
        lack("namespaces", "pods need Linux namespaces")
    (tmp_path / "cluster").mkdir()
    with serve_s3(BUCKET) as endpoint:
        try:
            started = installation.install(
                tmp_path / "cluster",
                store=endpoint.removeprefix("http://"),
                secrets=SECRETS,
                volumes={"images": images},
            )
            with started as running:
                yield running
        except kfp_backend.Unavailable as reason:
            lack("kfp", f"Kubeflow Pipelines: {reason}")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A small pipeline: images on a volume, everything else in the cluster's own store."""
    file = tmp_path / "pipeline.yaml"
    options = ("--data", "/mnt/images", "--kubeflow.steps", STEPS, "--output", str(file))
    network = ("--transform.size", "32", "--model.name", "cnn")
    small = (*network, "--training.epochs", "8", "--training.folds", "0")
    assert kfp_runner.main(("compile", "--image", "i:1", *options, *small)) == 0
    return file


def states(run: installation.Run) -> dict[str, str]:
    return {name: task.state for name, task in run.tasks.items() if name in TASKS}


def property_of(run: installation.Run, task: str, output: str, key: str) -> float:
    """Return a number from the metadata of an artifact."""
    return float(run.tasks[task].outputs[output].custom_properties[key].double_value)


def content(artifact: Any) -> bytes:
    fs, path = open_store(artifact.uri)
    return bytes(fs.cat(path))


def test_runs_under_kfps_own_driver_and_launcher(
    kubeflow: installation.Installation, spec: Path, images: Path, tmp_path: Path
) -> None:
    """A first run; the same again; other parameters, with a baseline; other images, broken."""
    first = kubeflow.run(spec)
    assert states(first) == dict.fromkeys(TASKS, "COMPLETE"), first.failure()
    assert property_of(first, "Evaluator-Pusher", "blessing", "blessed") == 1
    check_report(first.tasks["Evaluator-Pusher"].outputs)
    check_pushed(tmp_path / "model")

    second = kubeflow.run(spec)
    cached = {name: "COMPLETE" if name == LOOKUPS else "CACHED" for name in TASKS}
    assert states(second) == cached, second.failure()
    html = second.tasks["Evaluator-Pusher"].outputs["html"]
    assert html.id == first.tasks["Evaluator-Pusher"].outputs["html"].id

    # So few images show no smaller drop than that, even by the same answers.
    third = kubeflow.run(spec, {"training_epochs": 2, "max_accuracy_drop": 0.2})
    assert {name for name, state in states(third).items() if state == "CACHED"} == BEFORE_TRAINING
    assert "FAILED" not in states(third).values(), third.failure()
    assert property_of(first, "Evaluator-Pusher", "baseline", "found") == 0
    assert property_of(third, "Evaluator-Pusher", "baseline", "found") == 1

    for number in range(5):
        (images / "red" / f"broken-{number}.jpeg").write_bytes(b"no image")
    fourth = kubeflow.run(spec)
    assert states(fourth) == {LOOKUPS: "COMPLETE", "ImageExampleGen": "FAILED"}
    log = fourth.log("ImageExampleGen")
    # Once more, as its retries say.
    assert log.count("ImageExampleGen: error: 5 of 185 files in /mnt/images are not usable") == 2
    assert "Traceback" not in log
    # The log outlives the pod, and the second attempt adds to it.
    assert kept_logs(fourth.run_id) == {LOOKUPS, "ImageExampleGen"}
    kept = content_of(fourth.run_id, "ImageExampleGen")
    assert kept.count(b"ImageExampleGen: error: 5 of 185 files") == 2
    assert kept_logs(first.run_id) == TASKS
    assert kept_logs(second.run_id) == {LOOKUPS}
    asked = {path.partition("/kubeflow/")[2] for path in kubeflow.kubernetes.requests}
    assert asked == ASKED


def kept_logs(run_id: str) -> set[str]:
    fs, path = open_store(f"minio://{BUCKET}/v2/artifacts/images/{run_id}/logs")
    return {Path(file).stem for file in fs.ls(path, detail=False)}


def content_of(run_id: str, task: str) -> bytes:
    fs, path = open_store(f"minio://{BUCKET}/v2/artifacts/images/{run_id}/logs/{task}.txt")
    return bytes(fs.cat_file(path))


def check_pushed(folder: Path) -> None:
    """The pushed model is in the cluster's own store, with its card, and predicts."""
    fs, pushed = open_store(f"minio://{BUCKET}/v2/artifacts/images/pushed")
    [version] = fs.ls(pushed, detail=False)
    assert fs.exists(f"{version}/MODEL_CARD.md")
    fs.get(version, str(folder), recursive=True)
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    files = [encode(picture(5_000, colour=name), "JPEG") for name in sorted(COLOURS)]
    labels = signature(image_bytes=tf.constant(files))["label"].numpy().tolist()
    assert labels == [name.encode() for name in sorted(COLOURS)]


def check_report(outputs: Any) -> None:
    """Kubeflow draws artifacts by their types, from their metadata and files."""
    drawn = {name: one.type for name, one in outputs.items() if one.type.startswith("system.")}
    assert {name: kind for name, kind in drawn.items() if "logs" not in name} == {
        "html": "system.HTML",
        "metrics": "system.Metrics",
        "classification": "system.ClassificationMetrics",
        "card": "system.Markdown",
    }
    accuracy = outputs["metrics"].custom_properties["accuracy"].double_value
    numbers = json.loads(content(outputs["metrics"]))
    assert numbers["metrics"]["accuracy"]["value"] == accuracy > 0.9
    # The test on a real cluster finds them too.
    run_id = outputs["metrics"].uri.partition("/images/")[2].partition("/")[0]
    assert Store("images").read_metrics(run_id) == numbers
    assert content(outputs["html"]).lstrip().lower().startswith(b"<!doctype html>")
    # The launcher warns about an artifact without a file.
    assert json.loads(content(outputs["classification"]))["confusionMatrix"]
    matrix = outputs["classification"].custom_properties["confusionMatrix"].struct_value
    assert matrix["struct"]["annotationSpecs"][0]["displayName"] == sorted(COLOURS)[0]
