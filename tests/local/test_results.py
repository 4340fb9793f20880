"""What the outputs of the steps tell of a run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import local_runner
from components.contract.artifact_files import METRICS_FILE, PAGE_FILE
from components.contract.example import INDEX_FILE, SUMMARY_FILE
from components.contract.model_files import INPUT_FILE
from components.storage.saved_model import ROLLBACK, SERVING_FOLDER, model_digest
from pipeline_def.layout import Layout
from pipeline_def.local.results import read_results, summarize
from pipeline_def.runs.record import Data, Pushed, Recorder, RunRecord, Step, StepOutput
from tests.conftest import Refusal
from tests.evaluation.saved_model_sample import saved_model
from tests.pictures import write_folder

COUNTS = {"rejected": 2, "skipped": 1, "duplicates": 0, "label_conflicts": 0}

CORRECTED = {"file": "/c.csv", "sha256": "12", "relabeled": 2, "not_applied": 1, "reasons": ["b"]}

TRAINING = {"images_per_second": 9.0, "input_wait_fraction": 0.1, "advice": None}


def metrics(baseline: float | None) -> dict[str, Any]:
    accuracy = {"value": 0.9, "interval": [0.8, 0.95], "baseline": baseline, "change": None}
    return {
        "split": "test",
        "examination": {"findings": []},
        "verdict": {"outcome": "blessed", "headline": "Yes.", "reasons": ["good", "better"]},
        "selection_split": "eval",
        "metrics": {"accuracy": accuracy, "auc": {"value": None}},
        "search": {"trials": [{}, {}], "chosen": 1, "text": "Searched.", "space": {}},
    }


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(str(tmp_path), pipeline="images", configuration={}, code={})


def end(recorder: Recorder, name: str, **outputs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """End a step whose outputs have these properties and files."""
    step_outputs = {}
    for key, (properties, files) in outputs.items():
        folder = Path(recorder.output, "artifacts", name, key)
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content))
        step_outputs[key] = StepOutput(str(folder), key, properties)
    step = Step("done", seconds=1.0, outputs=step_outputs)
    recorder.step_ended(name, step, **read_results(recorder.record, name, step))


def record_all(recorder: Recorder, *, baseline: float | None, pushed: dict[str, Any]) -> RunRecord:
    listing = {"folder": "/data", "input_fingerprint": "f", "span": 3, "version": 1}
    index = {"splits": {"train": {"0": 7, "1": 3}, "test": {"0": 4}}, "labels": {"train": {"b": 1}}}
    report = metrics(baseline)
    version = {} if baseline is None else {"version": "17"}
    end(
        recorder,
        "ImageExampleGen",
        examples=(listing, {INDEX_FILE: index}),
        rejects=({}, {SUMMARY_FILE: {**COUNTS, "in_several_splits": 0, "corrections": CORRECTED}}),
    )
    end(recorder, "StatisticsGen", statistics=({}, {}))
    end(recorder, "ExampleValidator", anomalies=({"split_names": "[]"}, {}))
    end(recorder, "Trainer", model_run=({}, {INPUT_FILE: TRAINING}), model=({}, {}))
    model = recorder.record.steps["Trainer"].outputs["model"].uri
    saved_model(Path(model, SERVING_FOLDER), weights=b"of the candidate")
    end(recorder, "BaselineFinder", baseline=(version, {}))
    end(recorder, "Evaluator", blessing=({"blessed": 1}, {}), evaluation=({"split": "test"}, {}))
    files: dict[str, Any] = {PAGE_FILE: "the page"}
    end(recorder, "ImageReport", metrics=({}, {METRICS_FILE: report}), html=({}, files))
    end(recorder, "Pusher", pushed_model=(pushed, {}))
    return recorder.record


def test_of_a_model_that_was_pushed(recorder: Recorder, tmp_path: Path) -> None:
    pushed = {"pushed": 1, "pushed_version": "18", "pushed_destination": "/pushed/18"}
    record = record_all(recorder, baseline=0.8, pushed=pushed)
    assert record.data == Data("/data", "f", 3, 1, {"train": 10, "test": 4}, CORRECTED)
    assert (record.split, record.blessed, record.reasons) == ("test", True, ["good", "better"])
    assert record.metrics == {"accuracy": 0.9, "auc": None}
    assert record.baseline == {"version": "17", "accuracy": 0.8}
    assert record.pushed == Pushed("18", "/pushed/18")
    assert record.search == {"trials": 2, "chosen": 1, "text": "Searched."}
    layout = Layout(str(tmp_path))
    summary = summarize(record, layout, ["careful"])
    assert (summary["evaluated_on"], summary["weights_chosen_on"]) == ("test", "eval")
    assert (summary["rejected"], summary["skipped"], summary["classes"]) == (2, 1, ["b"])
    assert summary["examples"] == {"train": 10, "test": 4}
    assert summary["accuracy_interval"] == [0.8, 0.95]
    assert summary["blessing_reason"] == "good; better"
    assert summary["pushed_model"] == "/pushed/18"
    assert summary["nodes"]["Trainer"] == {"seconds": 1.0, "cached": False}
    assert summary["warnings"] == ["careful"]
    assert summary["paths"]["record"] == layout.record(record.id)


def test_what_a_user_gets_after_the_last_step(
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refusal: Refusal,
) -> None:
    record = record_all(recorder, baseline=0.8, pushed={"pushed": 0})
    data = write_folder(tmp_path / "images", each=2)
    arguments = ("--data", str(data), "--output", str(tmp_path / "out"))
    for outcome, status in ((record, 0), (None, 1)):
        monkeypatch.setattr(
            "pipeline_def.local.execution.execute", lambda config, o=outcome, **_: o
        )
        assert local_runner.main(arguments) == status
    layout = Layout(str(tmp_path / "out"))
    assert json.loads(Path(layout.report).read_text()) == "the page"
    assert json.loads(Path(layout.summary).read_text())["pushed_model"] is None
    out = capsys.readouterr().out
    assert "Accuracy     0.9000 on test" in out
    assert out.count("Done in") == 1

    Path(layout.report).unlink()
    Path(layout.report).mkdir()
    monkeypatch.setattr("pipeline_def.local.execution.execute", lambda config, **_: record)
    assert f"Cannot write {layout.report}: Is a directory." in refusal(*arguments)


@pytest.mark.parametrize(
    ("model", "withdrawn", "pushed", "expected"),
    [
        pytest.param("another", "the candidate", 1, (None, "17"), id="back"),
        pytest.param("the candidate", "", 0, ("19", None), id="back and forward"),
        pytest.param("another", "a third", 0, (None, None), id="from a third model"),
    ],
)
def test_what_is_pushed_after_a_rollback(
    recorder: Recorder,
    tmp_path: Path,
    model: str,
    withdrawn: str,
    pushed: int,
    expected: tuple[str | None, str | None],
) -> None:
    facts = {"pushed": pushed, "pushed_version": "18", "pushed_destination": "/pushed/18"}
    record = record_all(recorder, baseline=None, pushed=facts)
    in_use = saved_model(tmp_path / "pushed" / "19", weights=f"of {model}".encode())
    gone = saved_model(tmp_path / "gone", weights=f"of {withdrawn}".encode())
    rollback = {"restored": "17", "withdrawn": {model_digest(str(gone)): "18"}}
    (in_use / ROLLBACK).write_text(json.dumps(rollback))
    layout = Layout(str(tmp_path))
    summary = summarize(record, layout, [])
    path = summary["pushed_model"]
    assert (path and Path(path).name, summary["rolled_back_to"]) == expected
    page = layout.report if path else layout.refused_report
    assert summary["paths"]["report"] == page


@pytest.mark.parametrize(
    ("in_use", "blessed", "page"),
    [
        pytest.param(True, True, "report.html", id="it replaces the current model"),
        pytest.param(True, False, "report-not-blessed.html", id="it does not"),
        pytest.param(False, False, "report.html", id="no model is in use"),
    ],
)
def test_only_a_blessed_model_replaces_the_report_on_the_one_in_use(
    recorder: Recorder, tmp_path: Path, in_use: bool, blessed: bool, page: str
) -> None:
    # The current model may be the candidate itself, which is no baseline.
    pushed = {"pushed": int(blessed), "pushed_version": "18", "pushed_destination": "/pushed/18"}
    record = record_all(recorder, baseline=None, pushed=pushed)
    record = dataclasses.replace(record, blessed=blessed)
    if in_use:
        (tmp_path / "pushed" / "17").mkdir(parents=True)
        (tmp_path / "pushed" / "17" / "saved_model.pb").write_text("a graph")
    summary = summarize(record, Layout(str(tmp_path)), [])
    assert summary["paths"]["report"] == str(tmp_path / page)
