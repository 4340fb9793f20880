"""docs/measurements.md is what the results say, and the commands that make them work."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from benchmarks import measurements, runs
from pipeline_def.config.command_line import parse
from tests.pictures import write_folder

RESULT = {
    "command": "uv run -m benchmarks.runs --part digits",
    "date": "2026-11-23",
    "commit": "abc",
    "machine": "2 cores",
    "tables": [
        {
            "title": "Runs",
            "columns": ["run", "s"],
            "rows": [["first", "31 (30 to 32), 1.2 x, within the noise"]],
        }
    ],
    "figures": {},
}


FIGURE = {
    "seconds": 9.0,
    "until_training": 3.0,
    "cpu": 12.0,
    "mib": 900.0,
    "accuracy": 0.5,
    "report_mb": 1.0,
    "nodes": {"Trainer": {"seconds": 7.0}},
}


def test_the_page_is_current() -> None:
    page = measurements.PAGE.read_text(encoding="utf-8")
    assert page == measurements.render(measurements.read_results()), "run benchmarks.measurements"


def test_a_result_becomes_a_section() -> None:
    page = measurements.render({"runs": RESULT})
    assert "## A whole run\n" in page
    command = "```sh\nuv run -m benchmarks.runs --part digits\n```"
    table = "**Runs**\n\n|run|s|\n|-|-|\n|first|31 (30–32), ≈1.2x|\n"
    assert f"{command}\n\n2026-11-23, commit abc.\n\n{table}" in page
    assert page.count("2 cores.") == 1
    both = measurements.render({"runs": RESULT, "ingest": {**RESULT, "machine": "4 cores"}})
    assert f"{command}\n\n2026-11-23, commit abc; 2 cores.\n\n{table}" in both
    assert "2026-11-23, commit abc; 4 cores." in both


def test_every_command_and_option_exists() -> None:
    for measurement in measurements.MEASUREMENTS.values():
        for options in (measurement["options"], measurement.get("tiny", "")):
            command = re.sub(r"{\w+}", "x", f"{measurement['command']} {options}")
            module, *words = shlex.split(command)
            importlib.import_module(module)._parser().parse_args(words)


@pytest.mark.slow
@pytest.mark.weekly
def test_measurements_work_on_a_few_images(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The others are in the other files of this folder and in tests/server."""
    photos = write_folder(tmp_path / "photos", each=10)
    arguments = ["--tiny", "--photos", str(photos), "--only", "ingest,peers"]
    assert measurements.main(arguments) == 0, capfd.readouterr().err


@pytest.mark.slow
def test_whole_runs_are_tabulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real run's results are read in tests/test_pipeline.py."""
    monkeypatch.setenv("COLUMNS", "200")
    counts = []

    def pretend(options: list[str], output: Path) -> runs.Figure:
        [_, data, *_] = options
        counts.append(len(list(Path(data).glob("class */*.jpg"))))
        parse(options, prog="", usage="")
        return FIGURE

    monkeypatch.setattr(runs, "_run", pretend)
    words = ["--part", "many", "--images", "8", "--classes", "4", "--repeats", "1"]
    words += ["--work", str(tmp_path)]
    runs._measure(runs._parser().parse_args(words))
    row = " ".join(capsys.readouterr().out.splitlines()[-2].split())
    more = "with one image more"
    assert row == f"│ {more} │ 9.0 │ 3.0 │ 12.0 │ 900 MiB │ 0.500 │ 1.0 MB │ Trainer 7.0 s │"
    assert counts == [8, 8, 9]
