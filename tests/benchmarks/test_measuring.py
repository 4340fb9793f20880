from __future__ import annotations

import argparse
import doctest
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest

from benchmarks.measuring import limits, options, progress, spread
from benchmarks.measuring.process import MeasurementError, explain, measure
from benchmarks.measuring.spread import Spread, ratio
from components.contract.errors import DataError

BENCHMARKS = (
    *("evaluation", "ingest", "input_pipeline", "predict", "record_statistics", "report"),
    *("serving", "training", "peers.input_versus"),
)


def load(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_all_benchmarks_have_the_same_options(name: str) -> None:
    known = {option for action in load(name)._parser()._actions for option in action.option_strings}
    assert {"--repeats", "--json"} <= known
    assert {"--work", "--artifacts", "--output"} & known, "where things are written"
    assert not {"--rounds", "--seeds", "--folder", "--photographs"} & known


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        pytest.param("--repeats=0", "0 is not a number from 1 on", id="no repeat"),
        pytest.param("--json=/nowhere/out.json", "not a file in a folder that exists", id="json"),
        pytest.param("--work=/nowhere", "the folder /nowhere does not exist", id="work"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_measured(
    argument: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = options.make_parser("benchmarks.x", "", repeats=3)
    options.add_work(parser)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args([argument])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        pytest.param(DataError("No images in x."), 2, "error: No images in x.", id="a mistake"),
        pytest.param(KeyboardInterrupt(), 130, "stopped", id="Ctrl-C"),
    ],
)
def test_an_error_is_a_sentence(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        raise error

    assert options.run(argparse.ArgumentParser(prog="benchmark"), work) == status
    assert capsys.readouterr().err == f"benchmark: {said}\n"


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        pytest.param([9, 10, 11], [4, 5, 6], "2.00 x", id="apart"),
        pytest.param([4, 5, 6], [9, 10, 11], "0.50 x", id="apart, the other way"),
        pytest.param([8, 10, 11], [6, 7, 9], "1.43 x, within the noise", id="ranges meet"),
        pytest.param([10], [5], "2.00 x, within the noise", id="one measurement says nothing"),
    ],
)
def test_ratios_say_what_lies_within_the_noise(
    new: list[float], old: list[float], said: str
) -> None:
    assert ratio(Spread.of(new), Spread.of(old)) == said


@pytest.mark.parametrize("module", [spread, progress])
def test_the_examples_of_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def test_progress_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    progress.announce(180)
    of_two = progress.Progress(2)
    of_two.report("a: 10 images/s")
    of_two.report("b: 20 images/s")
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.startswith("It will take about 3 min")
    assert second == "[1/2] a: 10 images/s; about 1 s left"
    assert last == "[2/2] b: 20 images/s; done"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param("import nothing_of_this_name", "nothing_of_this_name is not", id="missing"),
        pytest.param("raise ImportError('built for another')", "built for another", id="broken"),
        pytest.param("import sys; sys.exit('It has no data.')", "It has no data", id="a sentence"),
        pytest.param("import os; os.kill(os.getpid(), 9)", "ended by signal 9", id="killed"),
    ],
)
def test_a_process_that_fails_is_explained(program: str, said: str) -> None:
    with pytest.raises(MeasurementError, match=said):
        measure(["-S", "-c", program])


def test_an_environment_that_is_not_there_is_explained() -> None:
    with pytest.raises(MeasurementError, match="/nowhere/python cannot be run: No such file"):
        measure(["-c", ""], python="/nowhere/python")
    assert explain("", 3) == "it ended with status 3"


def test_a_missing_peer_is_left_out_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versus = load("peers.input_versus")

    def pretend(arguments: list[str], **_: Any) -> dict[str, Any]:
        if "ffcv" in arguments:
            raise MeasurementError("the package ffcv is not installed in its environment")
        return {"images_per_second": 100.0, "cpu_microseconds": 20.0, "version": "1.0"}

    monkeypatch.setattr(versus, "measure", pretend)
    names = ["ours", "ffcv", "torch"]
    results, versions = versus._take_turns(names, {"batch": 8}, {"ffcv": "a", "torch": "b"}, 2)
    figure = {"images_per_second": 100.0, "cpu_microseconds": 20.0}
    assert results == {"ours": [figure] * 2, "torch": [figure] * 2}
    assert versions["torch"] == "1.0"
    said = capsys.readouterr().err
    assert said.count("ffcv is left out: the package ffcv is not installed") == 1
    arguments = SimpleNamespace(storage="jpeg", size=32, batch=8)
    versus._show(arguments, results, versions)
    assert "torch 1.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        pytest.param(None, ["ours", "ours, streamed", "limit"], id="all"),
        pytest.param("ours", ["ours"], id="a whole name"),
        pytest.param("streamed,lim", ["ours, streamed", "limit"], id="parts of names"),
    ],
)
def test_contenders_are_chosen_by_words(words: str | None, chosen: list[str]) -> None:
    assert load("peers.input_versus")._choose(["ours", "ours, streamed", "limit"], words) == chosen


def test_a_writer_whose_package_is_missing_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    contenders = load("peers.ingest_contenders")
    monkeypatch.setitem(sys.modules, "webdataset", None)
    with pytest.raises(ValueError, match="the package webdataset is not installed"):
        contenders.prepare("webdataset", "header")


def test_a_folder_without_jpegs_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no JPEG in a folder of its label"):
        load("ingest").make_copies(str(tmp_path), str(tmp_path / "copies"), 3)


@pytest.mark.parametrize(
    ("logarithmic", "begin", "said"),
    [
        pytest.param(False, 0, "range of the repeats", id="linear"),
        pytest.param(True, 10, "bars begin at 10 and not at zero", id="logarithmic"),
    ],
)
def test_bars_begin_at_zero_or_say_that_they_do_not(
    logarithmic: bool, begin: float, said: str
) -> None:
    from matplotlib.figure import Figure

    from benchmarks.measuring.bars import OURS, Bar, draw_bars

    matplotlib.use("agg")
    axis = Figure().add_subplot()
    bars = [Bar("ours", Spread.of([90, 100, 110]), OURS), Bar("other", Spread.of([40]), OURS)]
    draw_bars(axis, bars, logarithmic=logarithmic)
    assert axis.get_xlim()[0] == begin
    assert said in axis.get_xlabel()


def test_the_picture_of_ingest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = load("plot")
    figures = {"header": {"ours": [{"images_per_second": 10.0}, {"images_per_second": 12.0}]}}
    (tmp_path / "header.json").write_text(json.dumps(figures))
    (tmp_path / "other.json").write_text('{"rungs": []}')
    for name, status in (("header.json", 0), ("missing.json", 2), ("other.json", 2)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["plot", str(tmp_path / name), str(tmp_path / "out.svg")])
            assert plot.main() == status
    assert "this component" in (tmp_path / "out.svg").read_text()
    missing, other = capsys.readouterr().err.splitlines()
    assert "missing.json is not a file that --json has written" in missing
    assert "other.json: not the figures that are drawn here" in other


@pytest.mark.parametrize(
    ("work", "least", "most"),
    [
        pytest.param(0.04, 0.4, 1.0, id="a batch takes four times the pause"),
        pytest.param(1e-5, 0.0, 0.3, id="batches are there"),
    ],
)
def test_a_consumer_waits_for_threads_that_compute_longer_than_it_pauses(
    monkeypatch: pytest.MonkeyPatch, work: float, least: float, most: float
) -> None:
    monkeypatch.setattr(limits, "available_cpus", lambda: 1)
    assert least <= limits.wait_floor(work, 0.01, ahead=1, seconds=0.15) <= most
