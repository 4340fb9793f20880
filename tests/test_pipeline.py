"""Whole pipelines, as a user starts them: a process, a folder of images, an output folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.contract.example import ENCODED, LABEL
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


def run(output: Path, *argv: str) -> Outcome:
    """Start the runner as a user does, away from the repository's folder."""
    command = [sys.executable, str(ROOT / "local_runner.py"), "--output", str(output), *argv]
    done = subprocess.run(
        command,
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
    """Return image file and label of each example that the only run so far ingested."""
    [examples] = (output / "artifacts" / "ImageExampleGen" / "examples").iterdir()
    shards = sorted(str(path) for path in (examples / f"Split-{split}").iterdir())
    records = map(tf.train.Example.FromString, tf.data.TFRecordDataset(shards).as_numpy_iterator())
    return [
        tuple(r.features.feature[key].bytes_list.value[0] for key in (ENCODED, LABEL))
        for r in records
    ]


def test_the_life_of_a_pipeline(tmp_path: Path) -> None:
    """Run, run again, move an image, break an image; each time with what a user would check."""
    data = write_folder(tmp_path / "images", each=60)
    output = tmp_path / "out"
    options = ("--data", str(data), "--training.epochs", "8", "--training.patience", "8")

    first = run(output, *options)
    assert (first.status, first.err) == (0, ""), first.err
    assert list(first.summary["nodes"]) == NODES
    assert first.cached() == []
    assert sum(first.summary["examples"].values()) == 180
    assert first.summary["rejected"] == 0
    assert first.summary["classes"] == sorted(COLOURS)
    assert first.summary["metrics"]["accuracy"] > 0.9
    assert first.summary["blessed"]
    assert first.summary["baseline"] is None
    for name in NODES:
        assert name in first.out
    assert "Accuracy" in first.out
    assert "Warning" not in first.out

    new = [encode(picture(9_000, colour=name, height=50, width=40), "JPEG") for name in COLOURS]
    served = serve(first.summary["pushed_model"], new)
    assert [label.decode() for label in served["label"]] == list(COLOURS)

    held_out = read_split(output, "eval")
    answers = serve(first.summary["pushed_model"], [encoded for encoded, _ in held_out])["label"]
    accuracy = np.mean([a == label for a, (_, label) in zip(answers, held_out, strict=True)])
    assert first.summary["metrics"]["accuracy"] == pytest.approx(accuracy)

    second = run(output, *options)
    assert second.cached() == NODES
    assert second.summary["pushed_model"] == first.summary["pushed_model"]
    assert second.summary["metrics"] == first.summary["metrics"]

    # Same number of files, bytes and modification times: TFX's own fingerprint would not change.
    (data / "red" / "001.jpeg").rename(data / "blue" / "moved.jpeg")
    third = run(output, *options)
    assert "ImageExampleGen" not in third.cached()
    assert third.summary["baseline"]["version"] == Path(first.summary["pushed_model"]).name
    assert 0 <= third.summary["baseline"]["accuracy"] <= 1

    (data / "green" / "002.jpeg").write_bytes(b"\xff\xd8\xff broken")
    fourth = run(output, *options)
    assert fourth.status == 0
    assert fourth.summary["rejected"] == 1
    assert sum(fourth.summary["examples"].values()) == 179
    [reject] = Path(fourth.summary["paths"]["rejects"]).read_text().splitlines()
    assert json.loads(reject)["path"] == "green/002.jpeg"


def test_without_options_the_sample_of_digits_is_learnt(tmp_path: Path) -> None:
    outcome = run(tmp_path / "out")
    assert (outcome.status, outcome.err) == (0, ""), outcome.err
    assert sum(outcome.summary["examples"].values()) == 1797
    assert outcome.summary["classes"] == list("0123456789")
    assert outcome.summary["metrics"]["accuracy"] >= 0.96
    assert outcome.summary["blessed"]
    assert Path(outcome.summary["pushed_model"], "saved_model.pb").exists()


def test_two_runs_give_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    data = write_folder(tmp_path / "images", each=40)
    options = ("--data", str(data), "--training.epochs", "2", "--augmentation.flip", "true")
    weights = []
    for name in ("one", "two"):
        model = run(tmp_path / name, *options).summary["pushed_model"]
        weights.append(Path(model, "variables", "variables.data-00000-of-00001").read_bytes())
    assert weights[0] == weights[1]


def test_photographs_and_three_splits(tmp_path: Path) -> None:
    """The network for photographs, briefly; evaluated on the test split, where there is one."""
    for number, (split, each) in enumerate({"train": 8, "val": 4, "test": 4}.items()):
        write_folder(tmp_path / "images", each=each, split=split, first_seed=number * 100)
    outcome = run(
        tmp_path / "out",
        *("--data", str(tmp_path / "images"), "--model.name", "mobilenet_v2"),
        *("--transform.size", "96"),
        *("--training.epochs", "1", "--evaluation.min_accuracy", "0.99"),
    )
    assert outcome.status == 0, outcome.err
    assert "mobilenet_v2" in outcome.out
    assert outcome.summary["examples"] == {"eval": 12, "test": 12, "train": 24}
    assert outcome.summary["evaluated_on"] == "test"
    # After one step from random weights.
    assert not outcome.summary["blessed"]
    assert "below 0.99, the least allowed" in outcome.summary["blessing_reason"]
    assert outcome.summary["pushed_model"] is None


BREAK: dict[str, Callable[[Path], object]] = {
    "broken": lambda path: path.write_bytes(b"broken"),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("damage", BREAK.values(), ids=BREAK.keys())
def test_too_many_rejects_end_the_run_with_one_sentence(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    data = write_folder(tmp_path / "images", each=10)
    for path in sorted((data / "red").iterdir())[:5]:
        damage(path)
    outcome = run(tmp_path / "out", "--data", str(data))
    assert outcome.status == 2
    [line] = outcome.err.splitlines()
    assert line.startswith("local_runner.py: error: 5 of 30 files")
    assert "red/000.png" in line
    [log] = (tmp_path / "out" / "logs").iterdir()
    assert log.read_text().count("Rejected red/") == 5
