import contextlib
import io
import os
import re
import sys
import time
from pathlib import Path

import pytest

from components.host.progress import report_epoch, report_progress
from pipeline_def.local import run_display
from pipeline_def.local.results import Summary
from pipeline_def.local.run_display import RunDisplay, redirect_output
from pipeline_def.local.summary_table import print_summary
from pipeline_def.runs.record import Step

SUMMARY: Summary = {
    "search": None,
    "rolled_back_to": None,
    "corrections": {},
    "examples": {"eval": 20, "train": 1_280},
    "rejected": 2,
    "skipped": 1,
    "duplicates": 3,
    "label_conflicts": 1,
    "in_several_splits": 0,
    "warnings": [f"train: warning {number}" for number in range(7)],
    "classes": [f"class {number}" for number in range(30)],
    "metrics": {"accuracy": 0.91234, "loss": 0.3},
    "accuracy_interval": [0.9, 0.925],
    "evaluated_on": "test",
    "weights_chosen_on": "eval",
    "training": {
        "images_per_second": 1234.5,
        "input_wait_fraction": 0.345,
        "cache": "none",
        "advice": "set input.cache to decoded",
    },
    "baseline": {"version": "17", "accuracy": 0.9, "run": 2},
    "blessed": True,
    "outcome": "blessed",
    "headline": "Accuracy 91.2 %.",
    "evidence": "Significant at 95 %.",
    "blessing_reason": "accuracy 0.912 is above 0.500",
    "formats": {"int8": "", "onnx": "conversion failed: no Lgamma"},
    "findings": [
        {"section": "s", "text": f"finding {n}", "why": "w", "advice": f"do {n}"} for n in range(5)
    ],
    "try_first": "--model.weights none",
    "pushed_model": "/a folder/" + "long/" * 40,
    "model_in_use": "/out/pushed/17",
    "store_retries": {"HTTP status 429": 1_200, "a timeout": 3},
    "nodes": {
        "Trainer": {"seconds": 30.2, "cached": False},
        "Transform": {"seconds": 5.0, "cached": False},
        "Pusher": {"seconds": 0.1, "cached": True},
    },
    "paths": {
        "report": "/out/report.html",
        "rejects": "/out/rejects.jsonl",
        "duplicates": "/out/d.jsonl",
        "training_logs": "/out/run",
    },
}


def show_run(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_display, "PLAIN_INTERVAL", 0.0)
    display = RunDisplay(stream)
    with display.running(total=2):
        display.step_started("Trainer")
        report_progress(done=3, total=20, unit="epochs", note="accuracy 0.5")
        time.sleep(0.2)  # The bar is drawn ten times a second.
        display.step_ended("Trainer", Step("done", seconds=12.34))
        display.step_started("Pusher")
        display.step_ended("Pusher", Step("cached", seconds=0.01))
    report_progress(done=4, total=20, unit="epochs")


def test_plain_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    show_run(stream, monkeypatch)
    assert [" ".join(line.split()) for line in stream.getvalue().splitlines()] == [
        "[1/2] Trainer …",
        "[1/2] Trainer 3 of 20 epochs, accuracy 0.5",
        "[1/2] Trainer 12.3 s",
        "[2/2] Pusher …",
        "[2/2] Pusher unchanged, taken from the cache",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def train(stream: io.StringIO, epochs: int, *, stops_after: int) -> list[str]:
    """Show a training; return the lines that stay, without their step."""
    values = {"accuracy": 0.5, "val_accuracy": 0.25, "images_per_second": 1e6}
    display = RunDisplay(stream)
    with display.running(total=10):
        display.step_started("Trainer")
        for epoch in range(1, stops_after + 1):
            report_progress(done=epoch - 0.5, total=epochs, unit="epochs")
            report_epoch({**values, "input_wait_fraction": 0.5}, epoch=epoch, epochs=epochs)
        display.step_ended("Trainer", Step("done", seconds=12.34))
    lines = stream.getvalue().splitlines()
    kept = (line for line in lines if "acc .500 val .250 1,000,000/s" in line)
    # A busy machine may draw the bar with its values, too.
    return [line for line in kept if "\N{BOX DRAWINGS HEAVY HORIZONTAL}" not in line]


def test_lines_of_each_epoch_of_few_some_of_many_and_the_last_stay() -> None:
    for epochs, last, shown in ((5, 5, [1, 2, 3, 4, 5]), (50, 50, [*range(3, 49, 3), 50])):
        lines = train(io.StringIO(), epochs, stops_after=last)
        assert [int(line.split()[2].partition("/")[0]) for line in lines] == shown
        assert all("wait 50%" in line for line in lines)


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    kept = train(Terminal(), 10_000, stops_after=500)
    assert len(kept) == 1
    assert "500/10000" in kept[0]
    assert len(kept[0]) <= 80 + len("\x1b[2K\r"), "with the code that erases the bar"


def show_summary(summary: Summary, *, seconds: float = 1.0) -> None:
    file = "/out/summary.json"
    print_summary(summary, summary_file=file, output="/out", evaluated=(1, 3), seconds=seconds)


def test_the_table_can_be_copied_from(capsys: pytest.CaptureFixture[str]) -> None:
    show_summary(SUMMARY, seconds=61.4)
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    assert "✓ Accuracy 91.2 %. Published.\n" in text
    assert "20 eval, 1,280 train; 2 rejected, 1 skipped" in text
    assert "Rejects      /out/rejects.jsonl\n" in text
    assert "3 extra copies; 1 image appears under two labels\n" in text
    assert text.count(": warning") == 5
    assert "… and 2 more, in the report" in text
    assert "Try first    run again with --model.weights none\n" in text
    assert "Findings     finding 0: do 0\n" in text
    assert "finding 3" not in text
    assert text.count("… and 2 more, in the report") == 2
    assert "0.9123 on test. Significant at 95 %." in text
    assert "0.9000, run 2" in text
    assert "Formats      int8\n             onnx is missing: conversion failed: no Lgamma\n" in text
    assert [line[13:] for line in lines if "local_runner.py" in line] == [
        "uv run local_runner.py serve --output /out",
        "uv run local_runner.py predict DIR --output /out",
        "uv run local_runner.py runs --compare 1 3 --output /out",
    ]
    assert lines[-1] == "Done in 1 min 1 s."


def test_the_verdict_comes_first_and_nothing_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.chdir("/")
    reason = "; ".join(f"reason {number}" for number in range(30))
    summary = SUMMARY | {"blessing_reason": reason, "pushed_model": "/out/pushed/17"}
    show_summary(summary)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    lines = shown.splitlines()
    assert "\x1b[1;32m✓ Accuracy" in stream.getvalue(), "green, as it is significant"
    assert lines[1].startswith("✓ Accuracy")
    assert lines[2].startswith("Accuracy")
    assert max(map(len, lines)) <= 80
    assert " ".join(shown.split()).count("reason 29")
    assert "Report       out/report.html" in lines
    show_summary(SUMMARY | {"evidence": "Promising, but it could be chance."})
    assert "\x1b[1;33m✓ Accuracy 91.2 %. Published." in stream.getvalue()


UNDECIDED: Summary = SUMMARY | {
    "blessed": False,
    "outcome": "undecided",
    "findings": [],
    "headline": "Nobody can tell.",
    "pushed_model": None,
    "model_in_use": None,
    "rejected": 0,
}
SUSPECTS = {"section": "suspects", "text": "labels", "why": "w", "advice": "look"}
REASONS = ["a.jpg: why", "b"]
CORRECTED = {"relabeled": 2, "removed": 0, "not_applied": 3, "reasons": REASONS}
TABLES: dict[str, tuple[Summary, list[str]]] = {
    "not pushed": (
        UNDECIDED,
        [
            "? Nobody can tell. Not published.\n",
            "Findings     none\n",
            "Next         uv run local_runner.py predict DIR --output /out --unblessed\n",
            "Reasons      accuracy 0.912 is above 0.500\n",
            "not pushed",
        ],
    ),
    "corrections, and wrong labels to review": (
        SUMMARY | {"corrections": CORRECTED, "findings": [SUSPECTS]},
        [
            "Corrections  2 relabeled, 3 not applied; a.jpg: why\n",
            "Next         uv run local_runner.py review --output /out\n",
        ],
    ),
    "an earlier version recorded no run": (
        SUMMARY | {"baseline": {"version": "17", "accuracy": 0.9}},
        ["0.9000, version 17\n"],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_other_tables(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary, texts = TABLES[name]
    show_summary(summary)
    shown = capsys.readouterr().out
    assert [text for text in texts if text not in shown] == []
    assert ("rejects.jsonl" in shown) is bool(summary["rejected"])


def test_a_log_on_a_full_disk_leaves_nothing_on_the_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with os.fdopen(1, "w", closefd=False) as stdout, os.fdopen(2, "w", closefd=False) as stderr:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        with redirect_output("/dev/full"):
            print("from Python", file=sys.stdout)
            with contextlib.suppress(OSError):
                print("from Python", file=sys.stderr, flush=True)
        print("afterwards")
        monkeypatch.undo()
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("afterwards\n", "")


def test_what_libraries_print_goes_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    with redirect_output(str(log)) as terminal:
        os.write(2, b"from C++\n")
        print("from Python", file=sys.__stderr__, flush=True)
        print("for the user", file=terminal)
    os.write(1, b"afterwards\n")
    assert capfd.readouterr().out == "for the user\nafterwards\n"
    assert log.read_text().splitlines() == ["from C++", "from Python"]
