from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import runs, training
from tests.pictures import write_folder


@pytest.mark.slow
def test_every_contender_is_measured(tmp_path: Path) -> None:
    from benchmarks import training_run
    from benchmarks.ladder.data import prepare

    data, folder = write_folder(tmp_path / "images", each=8), str(tmp_path / "material")
    prepare(str(data), folder, size=32, images=16)
    trainings = {training_run.NAIVE, training_run.NAIVE_AHEAD, training_run.JPEG}
    for contender in (*trainings, training_run.BARE):
        task = training_run.Task(contender, folder, network="cnn", batch=8, epochs=2)
        figures = training_run.measure(task)
        [rate] = figures["images_per_second"]
        assert rate > 0
        if contender in trainings:
            [wait] = figures["wait_share"]
            assert 0 <= wait <= 1
            assert figures["seconds"] > 16 / rate


def figures(rate: float, wait: float, seconds: float) -> list[dict[str, Any]]:
    return [
        {"images_per_second": [rate * of, rate], "wait_share": [wait], "seconds": seconds * of}
        for of in (0.9, 1.0, 1.1)
    ]


def test_the_tables_compare_round_by_round_and_by_ranges() -> None:
    step = {
        "bare": [{"images_per_second": [1000.0]}, {"images_per_second": [500.0]}],
        "decoded": [{"images_per_second": [970.0]}, {"images_per_second": [495.0]}],
    }
    assert training._tabulate_step("", step).rows[1][2] == "0.980 (0.970 to 0.990)"
    naive = {"naive": figures(100, 0.4, 1046), "decoded": figures(200, 0.0, 709)}
    first, second = training._tabulate_naive("", naive).rows
    assert first[1:] == ["1,046.0 (941.4 to 1,150.6)", "100 (90 to 110)", "", "40.0%"]
    assert second[3] == "2.00 x"


def test_rare_classes_are_cut_in_train_and_eval_only(tmp_path: Path) -> None:
    for label in ("1", "3"):
        (tmp_path / "digits" / label).mkdir(parents=True)
        for number in range(100):
            (tmp_path / "digits" / label / f"{number}.png").touch()
    runs.write_rare(tmp_path / "digits", tmp_path / "rare")
    files = {
        f"{split}/{label}": {path.name for path in (tmp_path / "rare" / split / label).iterdir()}
        for split in ("train", "eval", "test")
        for label in ("1", "3")
    }
    counts = {place: len(names) for place, names in files.items()}
    assert counts == {
        "train/1": 60,
        "eval/1": 15,
        "test/1": 25,
        "train/3": 3,
        "eval/3": 1,
        "test/3": 25,
    }
    assert not files["test/3"] & (files["train/3"] | files["eval/3"])


def test_a_gain_counts_only_if_every_seed_shows_it() -> None:
    scores = {"none": [0.8, 0.9], "weights": [0.9, 0.94], "sampling": [0.7, 0.92]}
    found = {
        f"balance: {name}": [{"balanced_accuracy": score} for score in values]
        for name, values in scores.items()
    }
    none, weights, sampling = runs._tabulate_balances(found).rows
    assert none[2] == "+0.000 (+0.000 to +0.000)"
    assert weights == ["weights", "0.920 (0.900 to 0.940)", "+0.070 (+0.040 to +0.100)"]
    assert sampling[2] == "-0.040 (-0.100 to +0.020), within the noise"
