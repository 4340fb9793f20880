import argparse
import importlib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measuring import options, process
from benchmarks.measuring.process import MeasurementError, explain, measure
from benchmarks.measuring.results import Spread, ratio
from components.contract.errors import DataError


def load(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        pytest.param("--repeats=0", "0 is not a positive whole number", id="no repeat"),
        pytest.param("--json=/nowhere/out.json", "not a file in an existing folder", id="json"),
        pytest.param("--work=/nowhere", "the folder /nowhere does not exist", id="work"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_measured(
    argument: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = options.make_parser("benchmarks.x", "", repeats=3)
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
    error: BaseException,
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(_: argparse.Namespace) -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["benchmark"])
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
    said = "Loading …\nlocal_runner.py: error: There are no images.\nFull log: run.log\n"
    assert explain(said, 1) == "There are no images."


def test_a_missing_peer_is_left_out_and_the_others_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def pretend(name: str) -> dict[str, Any]:
        if name == "torch":
            raise MeasurementError("the package torch is not installed in its environment")
        return {"images_per_second": 100.0}

    figures = process.take_turns(["ours", "torch", "tf.data"], 2, pretend, str)
    assert figures == dict.fromkeys(("ours", "tf.data"), [{"images_per_second": 100.0}] * 2)
    said = capsys.readouterr().err
    assert said.count("torch is left out: the package torch is not installed") == 1
    with pytest.raises(MeasurementError, match="torch is not installed"):
        process.take_turns(["torch", "ours"], 2, pretend, str)


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        pytest.param(None, ["ours", "ours, streamed", "limit"], id="all"),
        pytest.param("ours", ["ours"], id="a whole name"),
        pytest.param("streamed,lim", ["ours, streamed", "limit"], id="parts of names"),
    ],
)
def test_contenders_are_chosen_by_words(words: str | None, chosen: list[str]) -> None:
    assert options.choose(["ours", "ours, streamed", "limit"], words) == chosen


def test_a_folder_without_jpegs_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "train/cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"has no JPEG in a folder of its label"):
        load("ingest_contenders").make_copies(str(tmp_path), str(tmp_path / "copies"), 3)
