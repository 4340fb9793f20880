"""`local_runner.py runs --compare`, on the artifacts of runs that never were."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import local_runner
from components.contract.errors import DataError
from components.contract.example import ENCODED, FILENAME, LABEL, SHA256
from components.evaluation.prediction_writer import join_parts, open_part
from components.records.shard_files import open_shard, shard_path, write_index
from components.records.tfrecord import Value, serialize
from pipeline_def.runs.history import select
from pipeline_def.runs.record import Pushed, RunRecord, Step, StepOutput, read_records, write_record
from tests.conftest import Refusal
from tests.local.run_samples import configure, write_run
from tests.pictures import encode, picture
from tests.repository import ROOT

pytestmark = pytest.mark.usefixtures("few_resamples")

LABELS = ("blue", "red")
IMAGES = 30


def write_evaluated_run(
    output: Path, number: int, *, right: int, first: int = 0, **changes: Any
) -> RunRecord:
    """Write a run whose model is right about so many of 30 images, from image `first` on."""
    record = write_run(output, number, **changes)
    examples, evaluation = (str(output / "artifacts" / name / str(number)) for name in ("x", "e"))
    images = range(first, first + IMAGES)
    _write_examples(examples, images)
    _write_answers(evaluation, images, right)
    steps = {
        "ImageExampleGen": Step("done", outputs={"examples": StepOutput(examples, "Examples")}),
        "Evaluator": Step(
            "done", outputs={"evaluation": StepOutput(evaluation, "ModelEvaluation")}
        ),
    }
    configuration = {**record.configuration, "output": str(output)}
    record = dataclasses.replace(record, steps=steps, configuration=configuration)
    write_record(record, str(output))
    return record


def _name(number: int) -> str:
    return f"{LABELS[number % 2]}/{number}.jpg"


def _write_examples(uri: str, images: range) -> None:
    with open_shard(shard_path(uri, "eval", 0, 1)) as writer:
        for number in images:
            features: dict[str, Value] = {
                ENCODED: encode(picture(number), "JPEG"),
                FILENAME: _name(number),
                LABEL: LABELS[number % 2],
                SHA256: f"{number:064x}",
            }
            writer.write(serialize(features))
    shards = {"eval": {"data_tfrecord-00000-of-00001": len(images)}}
    write_index(uri, shards, labels={"eval": dict.fromkeys(LABELS, len(images) // 2)})


def _write_answers(uri: str, images: range, right: int) -> None:
    truth = np.array(images) % 2
    said = np.where(np.arange(len(images)) < right, truth, 1 - truth)
    labels = [label.encode() for label in LABELS]
    columns = ("label", "class", "size", "luminance", "format", "folder")
    texts = {column: [labels[number] for number in truth] for column in columns}
    names = [_name(number).encode() for number in images]
    with open_part(uri, "shard", [labels]) as part:
        part.add({"filename": names, **texts}, [np.eye(2, dtype=np.float32)[said] * 0.8 + 0.1])
    join_parts(uri)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A folder of three runs: the second is better than the first, the third has failed."""
    folder = tmp_path / "out"
    write_evaluated_run(folder, 1, right=10)
    write_evaluated_run(folder, 2, right=25, configuration=configure(training={"epochs": 5}))
    write_run(folder, 3, until="Trainer", state="failed", pushed=None)
    return folder


def runs(*arguments: object) -> int:
    return local_runner.main(["runs", *map(str, arguments)])


@pytest.mark.slow
def test_runs_are_listed_and_compared_without_tensorflow_and_tfx(output: Path) -> None:
    program = (
        "import sys, local_runner; arguments = ['runs', '--output', sys.argv[1]]; "
        "status = local_runner.main(arguments) or "
        "local_runner.main([*arguments, '--compare', '1', '2']); "
        "sys.exit(status or any(name in sys.modules for name in ('tensorflow', 'tfx')))"
    )
    command = [sys.executable, "-c", program, str(output)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    page = output / "comparison.html"
    assert f"Page         {page}\n" in done.stdout
    assert re.search(rf"Run 2        started 2026-11-22 \d\d:02, in {output}\n", done.stdout)
    [verdict] = re.findall(r"Verdict +(Run 2 is better than run 1.*)", done.stdout)
    assert "0 images went from right to wrong and 15 from wrong to right." in done.stdout
    assert "Differs in   settings: training.epochs\n" in done.stdout
    text = page.read_text()
    assert verdict in text
    assert text.count("data:image/jpeg;base64,") == 15


def test_a_run_is_named_in_several_ways(tmp_path: Path) -> None:
    output, other = tmp_path / "out", tmp_path / "other"
    for number, name in ((1, "2026-11-22T10:01"), (2, "2026-11-22T10:02"), (3, "2026-11-23T10:00")):
        write_run(output, number, id=name)
    write_run(other, 4)
    write_run(other, 5, until="Trainer", state="stopped")
    for wanted, run_id in {
        "2": "2026-11-22T10:02",
        "2026-11-23T10:00": "2026-11-23T10:00",
        f"{other}/": "5",
    }.items():
        assert select(wanted, str(output)).record.id == run_id
    write_evaluated_run(other, 6, right=1, pushed=Pushed("1795345131", "/pushed/1795345131"))
    write_run(other, 7, until="Trainer", state="stopped")
    assert select(str(other), "/nowhere").record.id == "6"
    assert select("1795345131", str(other)).record.id == "6"
    for odd in ("²", "9" * 5_000, "2026-11-22"):
        with pytest.raises(DataError, match="No run matches"):
            select(odd, str(output))


def test_a_folder_that_was_moved_and_images_that_few_share(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_evaluated_run(output, 4, right=20, first=20)
    moved = Path(shutil.move(output, tmp_path / "moved"))
    assert runs("--output", moved, "--compare", "2", "4") == 0
    out = capsys.readouterr().out
    assert "both runs evaluated 10 whose label both models know, besides 20 others in run 2" in out
    assert "Accuracy on all of its images" in (moved / "comparison.html").read_text()


def test_of_too_many_images_the_same_some_are_compared(
    output: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of 30 images of two classes; their digests are their numbers.
    monkeypatch.setattr("pipeline_def.local.commands.comparison.MOST_SCORES", 40)
    assert runs("--output", output, "--compare", "1", "2") == 0
    out = capsys.readouterr().out
    assert "all numbers here are from one image in 2, chosen by its content." in out
    # The second run is right about images 0 to 24, the first about 0 to 9.
    assert "0 images went from right to wrong and 8 from wrong to right." in out
    assert "both runs evaluated 15 whose label both models know, besides 0 others" in out


SHARD = "x/2/Split-eval/data_tfrecord-00000-of-00001"
# Runs, an artifact and its content, which is removed if it is None; and what is said.
MISTAKES: dict[str, tuple[tuple[str, str], str, bytes | None, str]] = {
    "no such run": (("1", "7"), "", None, "No run matches '7' in OUT, which has runs 1 to 3"),
    "the same run": (("2", "2"), "", None, "2 and 2 are the same run"),
    "failed before": (("1", "3"), "", None, "Run 3 in OUT has no evaluation: it did not finish Ev"),
    "an empty folder": (("1", "OUT/artifacts"), "", None, "OUT/artifacts has no runs"),
    "no table": (("1", "2"), "e/2/predictions.parquet", b"?", "its artifacts are damaged"),
    "gone": (("1", "2"), "x/2/index.json", None, "index.json cannot be read"),
    "truncated": (("1", "2"), SHARD, b"x" * 20, "is truncated"),
    "empty": (("1", "2"), SHARD, b"", "does not hold"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_or_a_damaged_artifact_is_one_sentence(
    output: Path, refusal: Refusal, case: str
) -> None:
    wanted, artifact, content, said = MISTAKES[case]
    if artifact:
        (output / "artifacts" / artifact).unlink()
    if content is not None:
        (output / "artifacts" / artifact).write_bytes(content)
    names = [name.replace("OUT", str(output)) for name in wanted]
    line = refusal("runs", "--output", output, "--compare", *names)
    assert said.replace("OUT", str(output)) in line
    assert not (output / "comparison.html").exists()


def test_artifacts_that_a_later_run_has_replaced_are_not_compared(
    output: Path, refusal: Refusal
) -> None:
    # Without `metadata.sqlite` TFX counts from 1 again.
    [second] = read_records(str(output), "2")
    again = dataclasses.replace(second, id="4", started="2026-11-22T10:04:00.000+00:00")
    write_record(again, str(output))
    assert runs("--output", output, "--compare", "1", "4") == 0
    said = refusal("runs", "--output", output, "--compare", "1", "2")
    assert "of run 2 is gone: run 4 has another in its place" in said


def test_a_page_elsewhere(output: Path, tmp_path: Path, refusal: Refusal) -> None:
    arguments = ("--output", output, "--compare", "1", "2", "--to")
    assert runs(*arguments, tmp_path / "page.html") == 0
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    for wrong, said in (
        ((*arguments, output), "choose another file with --to"),
        (("--to", "page.html"), "--to needs --compare A B"),
        ((*arguments, "page.html", "--json"), "--json is for the list of runs"),
    ):
        assert said in refusal("runs", *wrong)
