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
from sklearn import metrics
from tfx import types
from tfx.orchestration import metadata
from tfx.orchestration.metadata import sqlite_metadata_connection_config

from benchmarks.gcs_server import Fault
from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from benchmarks.runs import read_results
from components.contract.example import ENCODED, LABEL
from components.metrics.metric_table import METRICS
from components.metrics.prediction_file import read_predictions
from components.report.component import Executor, ImageReport
from pipeline_def.layout import Layout
from pipeline_def.runs.record import read_records
from tests.nodes import NODES
from tests.pictures import COLOURS, encode, picture, turned
from tests.repository import ROOT

pytestmark = pytest.mark.slow


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
    return read_outcome(start(command(output, *argv), output.parent), output)


def start(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    env = {**plain, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=folder, env=env, check=False
    )


def read_outcome(done: subprocess.CompletedProcess[str], output: Path) -> Outcome:
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


def write_photographs(folder: Path) -> Path:
    """Write three splits; of each label one PNG, one with EXIF rotation, one in grayscale."""
    for place, (split, each) in enumerate({"train": 40, "val": 10, "test": 10}.items()):
        for index, label in enumerate(COLOURS):
            (folder / split / label).mkdir(parents=True)
            for number in range(each):
                seed = 10_000 * index + 1000 * place + number
                image = picture(seed, colour=label, height=150, width=200)
                image = image.convert("L") if number == 2 else image
                options = {"exif": turned(6)} if number == 1 else {}
                file = encode(image, "JPEG" if number else "PNG", **options)
                (folder / split / label / f"{number:03d}.jpg").write_bytes(file)
    return folder


@dataclass(frozen=True)
class First:
    """A whole run on a small folder, into an empty output folder."""

    data: Path
    output: Path
    outcome: Outcome

    @property
    def weights(self) -> bytes:
        return weights_of(self.outcome)


# On random crops and mirrored, so that random numbers have a part in the weights; chosen on `val`.
OPTIONS = (
    *("--training.epochs", "8", "--training.patience", "8", "--augmentation.flip", "true"),
    *("--augmentation.min_crop_area", "0.2", "--transform.size", "32", "--training.folds", "0"),
)
# In one process, as in a notebook; a mistake there is an error to catch.
NOTEBOOK = """
import sys
from local_runner import fit
folder, output, *words = sys.argv[1:]
model = fit(folder, output, **dict(zip((word[2:] for word in words[::2]), words[1::2])))
rows = model.predict(f"{folder}/test/red", f"{folder}/test/blue")
print(len(rows), model.report, model.summary["metrics"]["accuracy"] > 0.9, sorted(rows[0])[0])
try:
    fit(folder, output, nonsense=1)
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    folder = tmp_path_factory.mktemp("first")
    data, output = write_photographs(folder / "images"), folder / "out"
    done = start([sys.executable, "-c", NOTEBOOK, str(data), str(output), *OPTIONS], folder)
    assert done.returncode == 0, done.stderr
    return First(data, output, read_outcome(done, output))


def weights_of(outcome: Outcome) -> bytes:
    model = Path(outcome.summary["pushed_model"])
    return (model / "variables" / "variables.data-00000-of-00001").read_bytes()


@pytest.mark.xdist_group("first run")
def test_the_pushed_model_predicts_as_evaluated(first: First) -> None:
    outcome = first.outcome
    assert list(outcome.summary["nodes"]) == NODES
    assert outcome.cached() == []
    assert outcome.summary["examples"] == {"eval": 30, "test": 30, "train": 120}
    assert outcome.summary["rejected"] == 0
    assert outcome.summary["classes"] == sorted(COLOURS)
    assert outcome.summary["metrics"]["accuracy"] > 0.9
    assert outcome.summary["blessed"]
    assert outcome.summary["baseline"] is None
    for text in (*NODES, "Accuracy"):
        assert text in outcome.out
    assert "Warning" not in outcome.out
    assert f"\n20 {first.output}/report.html True " in outcome.out
    assert outcome.out.endswith("local_runner.py run ended with status 2.\n")
    measured = read_results(first.output)
    assert measured["accuracy"] == outcome.summary["metrics"]["accuracy"]
    assert measured["report_mb"] > 0.1

    new = [encode(picture(9_000, colour=name, height=50, width=40), "JPEG") for name in COLOURS]
    served = serve(outcome.summary["pushed_model"], new)
    assert [label.decode() for label in served["label"]] == list(COLOURS)

    assert outcome.summary["evaluated_on"] == "test"
    held_out = read_split(first.output, "test")
    served = serve(outcome.summary["pushed_model"], [encoded for encoded, _ in held_out])
    right = [a == label for a, (_, label) in zip(served["label"], held_out, strict=True)]
    assert outcome.summary["metrics"]["accuracy"] == pytest.approx(np.mean(right))


def report_again(output: Path, folder: Path) -> dict[str, types.Artifact]:
    """Report on the first run as on Kubeflow, where the URIs of outputs are files; return these."""
    record, *_ = read_records(str(output))
    layout, spec = Layout(str(output)), ImageReport.SPEC_CLASS
    outputs: dict[str, types.Artifact] = {name: kind.type() for name, kind in spec.OUTPUTS.items()}
    for name, artifact in outputs.items():
        artifact.uri = str(folder / name)
    given = {}
    with metadata.Metadata(sqlite_metadata_connection_config(layout.metadata)) as handle:
        for name, [uri] in record.steps["ImageReport"].inputs.items():
            [stored] = handle.store.get_artifacts_by_uri(uri)
            given[name] = [spec.INPUTS[name].type()]
            given[name][0].set_mlmd_artifact(stored)
    preview = {"preview_fn": "components.trainer.input.augment.preview"}
    properties = {"pipeline": "colours", "code": "c0de", **preview}
    Executor().Do(given, {name: [kind] for name, kind in outputs.items()}, properties)
    return outputs


@pytest.mark.xdist_group("first run")
def test_page_metrics_and_card_of_the_report(first: First, tmp_path: Path) -> None:
    outputs = report_again(first.output, tmp_path)
    model = read_predictions(first.outcome.summary["paths"]["evaluation"]).candidate
    predicted = model.probabilities.argmax(axis=1)
    file = json.loads((tmp_path / "metrics").read_text())
    assert file["split"] == "test"
    assert file["metrics"].keys() == set(METRICS)
    accuracy = file["metrics"]["accuracy"]
    assert accuracy["value"] == pytest.approx(metrics.accuracy_score(model.ids, predicted))
    assert accuracy["interval"][0] < accuracy["value"] <= accuracy["interval"][1]
    assert accuracy["baseline"] is None
    assert file["examples"] == sum(count for _, _, count in file["confusion"]) == 30
    wrong = sum(count for label, other, count in file["confusion"] if label != other)
    assert wrong == (predicted != model.ids).sum()
    assert outputs["metrics"].get_float_custom_property("accuracy") == accuracy["value"]
    page = (tmp_path / "html").read_text(encoding="utf-8")
    for text in ("colours", "c0de", "flip", f"{file['model']['parameters']:,}"):
        assert text in page
    # Samples of each class, as the model sees them and augmented.
    assert page.count("data:image/jpeg") >= 3 * 4 * 2 + wrong
    card = (tmp_path / "card").read_text(encoding="utf-8")
    assert f"{accuracy['value']:.4f}" in card


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
    environment = {**server.python_environment(folder), "XDG_STATE_HOME": str(folder)}
    program = [sys.executable, "-c", IMPATIENT, *places, *argv]
    return read_outcome(start(program, folder, **environment), folder / COPY)


def list_shards(output: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(output)): path.read_bytes()
        for step in ("ImageExampleGen/examples", "Transform/transformed_examples")
        for path in sorted((output / "artifacts" / step).glob("*/Split-*/*"))
    }


@pytest.mark.xdist_group("first run")
def test_faulty_buckets_give_the_same_weights_bit_for_bit(first: First, tmp_path: Path) -> None:
    """The buckets have Google's names and TLS; a second run takes everything from the cache."""
    data = write_photographs(tmp_path / "images")
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
    files = (path for name in names for path in (folder / name).rglob("*") if path.is_file())
    paths = (path.relative_to(folder) for path in files)
    return {str(path) for path in paths if not any(part[0] == "." for part in path.parts)}


@pytest.mark.xdist_group("first run")
def test_interrupt_resume_and_compare(first: First) -> None:
    """Change the images, kill the run, resume, and compare the runs.

    The last test of the first run, as it changes its folders.
    """
    options = ["--data", str(first.data), *OPTIONS]
    # Same number of files, bytes and modification times: TFX's own fingerprint would not change.
    train = first.data / "train"
    (train / "red" / "003.jpg").rename(train / "blue" / "moved.jpg")
    (train / "green" / "002.jpg").write_bytes(b"\xff\xd8\xff broken")
    options += ["--ingest.max_reject_fraction", "0.1"]
    kill_in("Trainer", first.output, *options)
    killed = read_records(str(first.output))[-1]
    assert (killed.state, killed.steps["Trainer"].state) == ("stopped", "stopped")
    assert "stopped at" in list_runs(first.output)

    last = run(first.output, *options)
    assert (last.status, last.err) == (0, ""), last.err
    assert last.cached() == NODES[: NODES.index("Trainer")]
    assert last.summary["baseline"]["version"] == Path(first.outcome.summary["pushed_model"]).name
    assert 0 <= last.summary["baseline"]["accuracy"] <= 1
    assert sum(last.summary["examples"].values()) == 179
    [reject] = Path(last.summary["paths"]["rejects"]).read_text().splitlines()
    assert json.loads(reject)["path"] == "train/green/002.jpg"
    record = read_records(str(first.output))[-1]
    assert record.steps["Transform"].made_by == killed.id
    shown = list_runs(first.output)
    assert "ingest.max_reject_fraction 0.1" in shown
    assert f"{NODES.index('Trainer')}/{len(NODES)}" in shown

    compared = list_runs(first.output, "--compare", "1", "3")
    assert "both runs evaluated 30 " in compared
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
