import argparse
from typing import Any

import pytest

from benchmarks.measuring import options, process
from benchmarks.measuring.process import MeasurementError, measure
from benchmarks.measuring.results import Spread, ratio
from components.contract.errors import DataError


def test_a_wrong_option_and_an_error_are_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = options.make_parser("benchmarks.x", "", repeats=3)
    for argument, said in (
        ("--repeats=0", "0 is not a positive whole number"),
        ("--json=/nowhere/out.json", "not a file in an existing folder"),
        ("--work=/nowhere", "the folder /nowhere does not exist"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parser.parse_args([argument])
        assert said in capsys.readouterr().err

    def work(_: argparse.Namespace) -> None:
        raise DataError("No images in x.")

    monkeypatch.setattr("sys.argv", ["benchmark"])
    assert options.run(argparse.ArgumentParser(prog="benchmark"), work) == 2
    assert capsys.readouterr().err == "benchmark: error: No images in x.\n"


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


def test_a_process_that_fails_is_explained_and_a_missing_peer_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(name: str) -> dict[str, Any]:
        if name == "torch":
            measure(["-S", "-c", "import nothing_of_this_name"])
        return {"images_per_second": 100.0}

    figures = process.take_turns(["ours", "torch", "tf.data"], 2, run, str)
    assert figures == dict.fromkeys(("ours", "tf.data"), [{"images_per_second": 100.0}] * 2)
    said = capsys.readouterr().err
    assert said.count("torch is left out: the package nothing_of_this_name is not") == 1
    with pytest.raises(MeasurementError, match="nothing_of_this_name is not"):
        process.take_turns(["torch", "ours"], 2, run, str)
