"""Names of folders and files may hold control characters: no command hands them to the terminal."""

import json
import logging
import re
import sys
from pathlib import Path

import pytest

import local_runner
from pipeline_def.config.config import Config
from pipeline_def.local.execution import execute
from pipeline_def.local.preparation import prepare
from pipeline_def.local.summary_table import print_summary
from pipeline_def.runs.record import Pushed
from tests.local.run_samples import configure, write_run
from tests.local.test_display import SUMMARY, Terminal
from tests.pictures import write_folder

# A colour, an erased screen in one character of eight bits, a turned direction, a line end.
NASTY = "a\x1b[31mb\x9b2J\u202e\nc"
SPELT = r"a\x1b[31mb\x9b2J\u202e\nc"


def unprintable(text: str) -> set[str]:
    """Return what acts on a terminal, but for the codes that Rich draws with."""
    rest = re.sub(r"\x1b\[([0-9;]*[mKA]|\?25[lh])", "", text.replace("\x1b[31m", "\x00"))
    return {c for c in rest if not c.isprintable() and c not in "\n\r"}


def test_the_table_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    finding = {"section": "s", "text": NASTY, "why": "w", "advice": NASTY}
    paths = {name: f"/out/{NASTY}/{name}" for name in SUMMARY["paths"]}
    summary = SUMMARY | {
        "warnings": [NASTY],
        "findings": [finding],
        "headline": NASTY,
        "blessing_reason": NASTY,
        "baseline": {"version": NASTY, "accuracy": 0.5},
        "pushed_model": f"/out/{NASTY}",
        "paths": paths,
    }
    print_summary(summary, summary_file=f"/{NASTY}", output="/out", evaluated=(1,), seconds=1.0)
    assert unprintable(stream.getvalue()) == set()
    assert stream.getvalue().count(SPELT) >= 10


def test_inspect_and_what_a_run_says_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Ingest refuses labels of several lines.
    label = NASTY.replace("\n", "")
    folder = write_folder(tmp_path / NASTY, each=30, labels=("red", "blue"))
    (folder / "red").rename(folder / label)
    (folder / "blue" / f"{NASTY}.jpg").write_bytes(b"no image")
    local_runner.main(["inspect", str(folder)])
    prepare(Config(data=str(folder), output=str(tmp_path)))
    shown = capsys.readouterr()
    assert unprintable(shown.out + shown.err) == set()
    assert f"Images:  {tmp_path}/{SPELT}\n" in shown.out
    assert f"blue/{SPELT}.jpg: not an image" in shown.out
    assert SPELT.replace(r"\n", "") in shown.out


def test_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local_runner.main(["inspect", str(tmp_path / NASTY)]) == 2

    def fail(*_: object) -> None:
        raise RuntimeError(NASTY.replace("\n", ""))

    monkeypatch.setattr("pipeline_def.local.execution._run_recorded", fail)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    # Goes to the log: pytest has its own standard error, which is not redirected.
    monkeypatch.setattr("traceback.print_exc", lambda: None)
    assert execute(Config(data="/data", output=str(tmp_path / NASTY))) is None
    shown = capsys.readouterr()
    assert unprintable(shown.out + shown.err) == set()
    assert shown.err.count(SPELT) == 2
    assert f"Log:    {tmp_path}/{SPELT}/logs" in shown.out


def test_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, 1)
    pushed = Pushed(NASTY, f"/{NASTY}")
    write_run(
        tmp_path,
        2,
        configuration=configure(NASTY, model={"build_fn": NASTY}) | {"given": ["model.build_fn"]},
        fingerprint=NASTY,
        split=NASTY,
        pushed=pushed,
    )
    arguments = ["runs", "--output", str(tmp_path)]
    assert local_runner.main(arguments) == 0
    assert unprintable(text := capsys.readouterr().out) == set()
    assert f"model.build_fn {SPELT}" in text
    assert local_runner.main([*arguments, "--json"]) == 0
    assert unprintable(text := capsys.readouterr().out) == set()
    assert json.loads(text)[1]["split"] == NASTY
