"""Whole pipelines, started as a user does, with a folder of images and an output folder."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from benchmarks.gcs_server import Fault
from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from benchmarks.runs import read_results
from components.contract.example import ENCODED, LABEL
from pipeline_def.runs.record import read_records
from tests.nodes import NODES
from tests.pictures import COLOURS, encode, picture, write_folder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str
    summary: dict[str, Any]

    def cached(self) -> list[str]:
        return [name for name, node in self.summary["nodes"].items() if node["cached"]]


def command(output: Path, *argv: str) -> list[str]:
    return [sys.executable, str(ROOT / "local_runner.py"), "--output", str(output), *argv]


def run(output: Path, *argv: str) -> Outcome:
    """Start the runner as a user does, away from the repository's folder."""
    done = subprocess.run(
        command(output, *argv),
        capture_output=True,
        text=True,
        timeout=900,
        cwd=output.parent,
        env={k: v for k, v in os.environ.items() if not k.startswith("TF_")},
        check=False,
    )
    summary = output / "summary.json"
    facts = json.loads(summary.read_text()) if done.returncode == 0 else {}
    return Outcome(done.returncode, done.stdout, done.stderr, facts)


def serve(model: str, files: list[bytes]) -> dict[str, np.ndarray[Any, Any]]:
    signature = tf.saved_model.load(model).signatures["serving_default"]
    return {k: v.numpy() for k, v in signature(image_bytes=tf.constant(files)).items()}


def read_split(output: Path, split: str) -> list[tuple[bytes, bytes]]:
    """Return the image file and label of each example of the only run so far."""
    [examples] = (output / "artifacts" / "ImageExampleGen" / "examples").iterdir()
    shards = sorted(str(path) for path in (examples / f"Split-{split}").iterdir())
    records = map(tf.train.Example.FromString, tf.data.TFRecordDataset(shards).as_numpy_iterator())
    return [
        tuple(r.features.feature[key].bytes_list.value[0] for key in (ENCODED, LABEL))
        for r in records
    ]


@dataclass(frozen=True)
class First:
    """A whole run on a small folder, into an empty output folder."""

    data: Path
    output: Path
    outcome: Outcome
    weights: bytes


# Augmented, so that random numbers have a part in the weights; judged on the eval split.
OPTIONS = (
    *("--training.epochs", "8", "--training.patience", "8", "--augmentation.flip", "true"),
    *("--training.folds", "0"),
)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    folder = tmp_path_factory.mktemp("first")
    data, output = write_folder(folder / "images", each=60), folder / "out"
    outcome = run(output, "--data", str(data), *OPTIONS)
    assert (outcome.status, outcome.err) == (0, ""), outcome.err
    return First(data, output, outcome, weights_of(outcome))


def weights_of(outcome: Outcome) -> bytes:
    model = Path(outcome.summary["pushed_model"])
    return (model / "variables" / "variables.data-00000-of-00001").read_bytes()


@pytest.mark.xdist_group("first run")
def test_the_pushed_model_predicts_as_evaluated(first: First) -> None:
    outcome = first.outcome
    assert list(outcome.summary["nodes"]) == NODES
    assert outcome.cached() == []
    assert sum(outcome.summary["examples"].values()) == 180
    assert outcome.summary["rejected"] == 0
    assert outcome.summary["classes"] == sorted(COLOURS)
    assert outcome.summary["metrics"]["accuracy"] > 0.9
    assert outcome.summary["blessed"]
    assert outcome.summary["baseline"] is None
    for text in (*NODES, "Accuracy"):
        assert text in outcome.out
    assert "Warning" not in outcome.out
    measured = read_results(first.output)
    assert measured["accuracy"] == outcome.summary["metrics"]["accuracy"]
    assert measured["report_mb"] > 0.1

    new = [encode(picture(9_000, colour=name, height=50, width=40), "JPEG") for name in COLOURS]
    served = serve(outcome.summary["pushed_model"], new)
    assert [label.decode() for label in served["label"]] == list(COLOURS)

    check_served_accuracy(first.output, outcome)


def check_served_accuracy(output: Path, outcome: Outcome) -> None:
    """The pushed model predicts the held-out images as accurately as the run evaluated."""
    held_out = read_split(output, outcome.summary["evaluated_on"])
    served = serve(outcome.summary["pushed_model"], [encoded for encoded, _ in held_out])["label"]
    accuracy = np.mean([a == label for a, (_, label) in zip(served, held_out, strict=True)])
    assert outcome.summary["metrics"]["accuracy"] == pytest.approx(accuracy)


# Each meets 5 % of all requests.
FAULTS: tuple[Fault, ...] = (429, 500, 503, "reset", "stall", "short", "corrupt", 401, 404)
IMPATIENT = """
import sys
import local_runner
from components.storage import retry

retry.RETRY_POLICY = retry.RetryPolicy(first_pause=0.02, longest_pause=0.2, silence=0.3)
sys.exit(local_runner.main())
"""


# The working copy of gs://out/run, below `$XDG_STATE_HOME`.
COPY = "tfx-image-pipeline/gs/out/run"


def run_in_buckets(server: TlsGcsServer, folder: Path, *argv: str) -> Outcome:
    """Start the runner on gs://data, with its output in gs://out/run."""
    places = ("--data", "gs://data", "--output", "gs://out/run")
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, *places, *argv],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("TF_")},
            **server.python_environment(folder),
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(folder),
        },
        check=False,
    )
    summary = folder / COPY / "summary.json"
    facts = json.loads(summary.read_text()) if done.returncode == 0 else {}
    return Outcome(done.returncode, done.stdout, done.stderr, facts)


def list_shards(output: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(output)): path.read_bytes()
        for step in ("ImageExampleGen/examples", "Transform/transformed_examples")
        for path in sorted((output / "artifacts" / step).glob("*/Split-*/*"))
    }


@pytest.mark.xdist_group("first run")
def test_faulty_buckets_give_the_same_weights_bit_for_bit(first: First, tmp_path: Path) -> None:
    """The buckets have Google's names and TLS; a second run takes everything from the cache."""
    data = write_folder(tmp_path / "images", each=60)
    with TlsGcsServer({"data": data}) as server:
        bucket = server.add_bucket("out")
        server.fault_rates = dict.fromkeys(FAULTS, 0.05)
        again = run_in_buckets(server, tmp_path, *OPTIONS)
        assert again.status == 0, again.err
        assert weights_of(again) == first.weights
        assert list_shards(tmp_path / COPY) == list_shards(first.output)
        assert again.summary["metrics"] == first.outcome.summary["metrics"]
        retries = again.summary["store_retries"]
        assert sum(retries.values()) > 50
        [log] = (tmp_path / COPY / "logs").iterdir()
        # Before the log begins, and after it ends, they are on the terminal.
        logged = (log.read_text() + again.err).count("Retrying in")
        assert logged >= sum(retries.values())

        facts = json.loads(bucket.item("run/summary.json").data)
        assert facts["pushed_model"].startswith("gs://out/run/pushed/")
        assert facts["pushed_model"] in again.out
        stored = {name.removeprefix("run/") for name in bucket.names()}
        assert stored >= list_files(tmp_path / COPY, "artifacts", "pushed", "runs", "statistics")
        assert stored >= {"metadata.sqlite", "report.html", f"logs/{log.name}"}

        server.fault_rates = {}
        cached = run_in_buckets(server, tmp_path, *OPTIONS)
        assert cached.cached() == NODES
        for key in ("pushed_model", "metrics"):
            assert cached.summary[key] == again.summary[key]
        same = list_runs(tmp_path / COPY, "--compare", "1", "2")
        assert "Undecided: " in same
        assert "0 images went from right to wrong and 0 from wrong to right." in same
        assert sum(name.endswith("/MODEL_CARD.md") for name in bucket.names()) == 1


def list_files(folder: Path, *names: str) -> set[str]:
    """Return the files of some folders, except hidden ones."""
    found = (path for name in names for path in (folder / name).rglob("*") if path.is_file())
    paths = (path.relative_to(folder) for path in found)
    return {str(path) for path in paths if not any(part[0] == "." for part in path.parts)}


@pytest.mark.xdist_group("first run")
def test_interrupt_resume_and_compare(first: First) -> None:
    """Change the images, kill the run, resume, and compare the runs.

    The last test of the first run, as it changes its folders.
    """
    options = ["--data", str(first.data), *OPTIONS]
    # Same number of files, bytes and modification times: TFX's own fingerprint would not change.
    (first.data / "red" / "001.jpeg").rename(first.data / "blue" / "moved.jpeg")
    (first.data / "green" / "002.jpeg").write_bytes(b"\xff\xd8\xff broken")
    options += ["--ingest.max_reject_fraction", "0.1"]
    kill_in("Trainer", first.output, *options)
    killed = read_records(str(first.output))[-1]
    assert (killed.state, killed.steps["Trainer"].state) == ("stopped", "stopped")
    assert "stopped at" in list_runs(first.output)

    last = run(first.output, *options)
    assert last.status == 0, last.err
    assert last.cached() == NODES[: NODES.index("Trainer")]
    assert last.summary["baseline"]["version"] == Path(first.outcome.summary["pushed_model"]).name
    assert 0 <= last.summary["baseline"]["accuracy"] <= 1
    assert sum(last.summary["examples"].values()) == 179
    [reject] = Path(last.summary["paths"]["rejects"]).read_text().splitlines()
    assert json.loads(reject)["path"] == "green/002.jpeg"
    record = read_records(str(first.output))[-1]
    assert record.steps["Transform"].made_by == killed.id
    shown = list_runs(first.output)
    assert "ingest.max_reject_fraction 0.01 → 0.1" in shown
    assert f"{NODES.index('Trainer')}/{len(NODES)}" in shown

    # All but the image that was moved and the one that was broken, where they judged.
    judged = first.outcome.summary["examples"][first.outcome.summary["evaluated_on"]]
    compared = list_runs(first.output, "--compare", "1", "3")
    [shared] = re.findall(r"both runs evaluated (\d+)", compared)
    assert judged - 2 <= int(shared) <= judged
    pictures = (first.output / "comparison.html").read_text().count("data:image/jpeg;base64,")
    [changed] = re.findall(r"(\d+) images? went .* and (\d+) from wrong to right", compared)
    assert pictures == sum(map(int, changed))


def kill_in(step: str, output: Path, *argv: str) -> None:
    """Start a run, and kill it with SIGKILL when `step` begins."""
    with subprocess.Popen(command(output, *argv), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.split()[1:] == [step, "…"]:
                process.kill()
                return
    raise AssertionError(f"{step} did not begin")


def list_runs(output: Path, *options: str) -> str:
    argv = [sys.executable, str(ROOT / "local_runner.py"), "runs", "--output", str(output)]
    return subprocess.run([*argv, *options], capture_output=True, text=True, check=True).stdout


def write_photographs(folder: Path, *, each: int, first_seed: int) -> None:
    """Write larger images: of each label one PNG, one with EXIF rotation, one in grayscale."""
    rotated = Image.Exif()
    rotated[0x0112] = 6
    for label in COLOURS:
        (folder / label).mkdir(parents=True)
        for number in range(each):
            image = picture(first_seed + number, colour=label, height=150, width=200)
            image = image.convert("L") if number == 2 else image
            options = {"exif": rotated} if number == 1 else {}
            file = encode(image, "JPEG" if number else "PNG", **options)
            (folder / label / f"{number:03d}").with_suffix(".jpg").write_bytes(file)


def test_photographs_in_three_splits(tmp_path: Path) -> None:
    """Trained on random crops, chosen on `val`, and evaluated on `test`."""
    data, sizes = tmp_path / "images", {"train": 24, "val": 6, "test": 8}
    for number, (split, each) in enumerate(sizes.items()):
        write_photographs(data / split, each=each, first_seed=1000 * number)
    outcome = run(
        tmp_path / "out",
        *("--data", str(data), "--transform.size", "32"),
        *("--augmentation.min_crop_area", "0.2", "--training.epochs", "6"),
    )
    assert (outcome.status, outcome.err) == (0, ""), outcome.err
    assert outcome.summary["examples"] == {"eval": 18, "test": 24, "train": 72}
    assert outcome.summary["evaluated_on"] == "test"
    assert outcome.summary["metrics"]["accuracy"] > 0.8
    assert outcome.summary["blessed"]
    check_served_accuracy(tmp_path / "out", outcome)


def test_too_many_rejects_fail_with_one_sentence(tmp_path: Path) -> None:
    data = write_folder(tmp_path / "images", each=10)
    for number, path in enumerate(sorted((data / "red").iterdir())[:5]):
        path.write_bytes(b"broken" if number % 2 else b"")
    outcome = run(tmp_path / "out", "--data", str(data))
    assert outcome.status == 2
    [line] = outcome.err.splitlines()
    assert line.startswith("local_runner.py: error: 5 of 30 files")
    assert "red/000.png" in line
    [log] = (tmp_path / "out" / "logs").iterdir()
    assert log.read_text().count("Rejected red/") == 5
    [record] = read_records(str(tmp_path / "out"))
    assert (record.state, record.steps["ImageExampleGen"].state) == ("failed", "failed")
    assert record.error in line
