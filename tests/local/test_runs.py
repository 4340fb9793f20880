"""`local_runner.py runs` and the records it reads."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import local_runner
from components.host.lock import locked
from pipeline_def.layout import Layout
from pipeline_def.runs.record import Data, Pushed, Recorder, Step, StepOutput, read_records
from pipeline_def.runs.table import show_runs
from tests.conftest import Refusal
from tests.local.run_samples import FIRST, configure, end_training, write_run
from tests.local.test_display import Terminal


def record_run(output: Path, **fields: Any) -> Recorder:
    given: dict[str, Any] = {"pipeline": "images", "configuration": {}}
    return Recorder(str(output), **(given | {"code": {}} | fields))


def test_a_run_is_written_down_as_it_goes_on(tmp_path: Path) -> None:
    recorder = record_run(tmp_path, configuration={"data": "/a"}, code={"A": "1"})
    with locked(Layout(str(tmp_path)).lock, "it", say=print):
        [record] = read_records(str(tmp_path))
        assert (record.state, record.steps) == ("running", {})
        assert record.configuration == {"data": "/a"}
        assert record.versions.keys() >= {"python", "tfx", "tensorflow"}
        recorder.step_started("A")
        [record] = read_records(str(tmp_path))
        assert record.steps["A"].state == "running"

    outputs = {"x": StepOutput("/a/1", "X", {"n": 1})}
    recorder.step_ended("A", Step("done", seconds=2.0, outputs=outputs), split="test")
    recorder.step_started("B")
    recorder.end("failed", "No disk.")
    [record] = read_records(str(tmp_path))
    assert record == recorder.record
    assert {name: step.state for name, step in record.steps.items()} == {"A": "done", "B": "failed"}
    assert (record.state, record.error, record.split) == ("failed", "No disk.", "test")
    assert record.ended

    again = record_run(tmp_path)
    again.step_ended("A", Step("cached", outputs=outputs))
    again.step_ended("B", Step("cached", outputs={"y": StepOutput("/b/0", "Y")}))
    assert {n: s.made_by for n, s in again.record.steps.items()} == {"A": record.id, "B": ""}


def test_an_error_with_a_name_that_is_no_text_is_read_again(tmp_path: Path) -> None:
    record_run(tmp_path, configuration={"data": "/🐱"}).end("failed", "ph\udcffoto.jpg is gone.")
    [record] = read_records(str(tmp_path))
    assert (record.error, record.configuration["data"]) == ("ph?oto.jpg is gone.", "/🐱")


def test_a_killed_run_is_stopped_and_a_living_one_runs(tmp_path: Path) -> None:
    for number in (1, 2):
        begun = write_run(tmp_path, number, until="Trainer")
        steps = end_training(begun, "running")
        write_run(tmp_path, number, state="running", steps=steps)

    def states() -> list[str]:
        records = read_records(str(tmp_path))
        assert [record.steps["Trainer"].state for record in records] == [r.state for r in records]
        return [record.state for record in records]

    assert states() == ["stopped", "stopped"]
    with locked(Layout(str(tmp_path)).lock, "it", say=print):
        assert states() == ["stopped", "running"]
    assert states() == ["stopped", "stopped"]
    write_run(tmp_path, 2, state="running", steps=steps, host="another machine")
    assert states() == ["stopped", "running"]


CORRECTED = Data(
    "/data",
    f"{FIRST},corrections:12345678ab",
    examples={"eval": 200},
    corrections={"file": "/c.csv", "sha256": "12345678ab", "relabeled": 1_200, "not_applied": 1},
)


def test_corrections_and_a_search_are_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, 1)
    search = {"trials": 27, "chosen": 3, "text": "Trial 3 is better."}
    write_run(tmp_path, 2, data=CORRECTED, search=search)
    write_run(tmp_path, 3, fingerprint="", until="ImageExampleGen", state="failed")
    other = {**CORRECTED.corrections, "sha256": "99999999"}
    write_run(tmp_path, 4, data=dataclasses.replace(CORRECTED, corrections=other))
    write_run(tmp_path, 5)
    show_runs(str(tmp_path))
    said = capsys.readouterr().out
    assert said.count("1,200 relabeled") == said.count("1 not applied") == 2
    assert said.count("1,200 files") == 4
    assert said.count("27 trials") == 1


def test_the_table_has_a_run_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, 1)
    given = ["data", "ingest.corrections", "training.epochs"]
    shorter = configure(training={"epochs": 5}) | {"given": given}
    write_run(tmp_path, 2, configuration=shorter, accuracy=0.88)
    write_run(tmp_path, 3, blessed=False, pushed=None)
    four = write_run(tmp_path, 4, until="Trainer", state="stopped")
    write_run(tmp_path, 4, state="stopped", steps=end_training(four, "stopped"))
    failed = end_training(four, "failed")
    write_run(tmp_path, 5, until="Trainer", state="failed", steps=failed)
    write_run(tmp_path, 6, until="Trainer", state="stopped", cached=("ImageExampleGen",))
    write_run(tmp_path, 7, until="Trainer", state="running", host="another machine")
    assert local_runner.main(["runs", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "Pipeline images, images /data" in text
    for cell in (
        "done, 42 s",
        "training.epochs 5",
        "ingest.corrections none",
        "0.8800",
        "not blessed",
        "stopped at",
        "stopped after",
        "failed at",
        "running or killed",
        "1/2 cached",
    ):
        assert cell in text
    assert text.count("1,200 files") == text.count("aaaaaaaa") == 7
    show_runs(str(tmp_path), as_json=True)
    runs = json.loads(capsys.readouterr().out)
    assert [run["id"] for run in runs] == [*"1234567"]
    assert runs[1]["configuration"]["training"]["epochs"] == 5


UNREADABLE = {
    "no runs": (None, "has no records. Pass the output folder"),
    "no JSON": ("{", "is not a valid run record: move its folder away."),
    "other JSON": ('{"format": 1}', "is not a valid run record"),
    "a later format": ('{"format": 99}', "was written by a later version"),
    "an unknown state": ('"state": "unheard of"', "is not a valid run record"),
    "no time": ('"started": "yesterday"', "is not a valid run record"),
    "deep": (f'"configuration": {"[" * 100_000}', "is not a valid run record"),
}


@pytest.mark.parametrize(("content", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_one_sentence(
    tmp_path: Path, refusal: Refusal, content: str | None, message: str
) -> None:
    if content is not None:
        write_run(tmp_path, 1)
        path = Path(Layout(str(tmp_path)).record("1"))
        written = path.read_text().rstrip().removesuffix("}")
        path.write_text(content if content.startswith("{") else f"{written}, {content}}}")
    assert message in refusal("runs", "--output", tmp_path)
    assert record_run(tmp_path).record.state == "running"


def test_the_table_fits_into_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, 1)
    changed = configure(training={"epochs": 5, "weight_decay": 0.0013}, model={"name": "resnet9"})
    changed["given"] = ["model.name", "training.epochs", "training.weight_decay"]
    write_run(tmp_path, 2, configuration=changed, pushed=Pushed("1795345131", "/p"))
    write_run(
        tmp_path, 3, blessed=False, pushed=None, fingerprint="files:1200000,sha256:" + "a" * 64
    )
    write_run(tmp_path, 4, until="Evaluator", state="running", host="another machine")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    show_runs(str(tmp_path))
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    shown = "".join(terminal.getvalue().split())
    assert "RunStartedImagesOptionsAccuracyPushed" in shown
    for text in ("1,200,000 files", "running or killed", "1795345131", "not blessed"):
        assert any(text in line for line in lines)
    assert any("training.ep" in line for line in lines)
