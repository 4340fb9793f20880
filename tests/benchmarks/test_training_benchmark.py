from pathlib import Path
from typing import Any

import pytest

from benchmarks import training
from tests.pictures import write_folder


@pytest.mark.slow
def test_every_contender_is_measured(tmp_path: Path) -> None:
    from benchmarks import training_run
    from benchmarks.ladder.data import prepare

    data, folder = write_folder(tmp_path / "images", each=8), str(tmp_path / "material")
    prepare(str(data), folder, size=32, images=16)
    for contender in training_run.CONTENDERS[:-1]:
        task = training_run.Task(contender, folder, network="cnn", batch=8, epochs=2)
        figures = training_run.measure(task)
        [rate] = figures["images_per_second"]
        assert rate > 0
        [wait] = figures["wait_share"]
        assert 0 <= wait <= 1
        assert figures["seconds"] > 16 / rate


def figures(rate: float, wait: float, seconds: float) -> list[dict[str, Any]]:
    return [
        {"images_per_second": [rate * of, rate], "wait_share": [wait], "seconds": seconds * of}
        for of in (0.9, 1.0, 1.1)
    ]


def test_the_table_compares_with_the_naive_loop() -> None:
    naive = {"naive": figures(100, 0.4, 1046), "decoded": figures(200, 0.0, 709)}
    first, second = training._tabulate("", naive).rows
    assert first[1:] == ["1,046.0 (941.4 to 1,150.6)", "100 (90 to 110)", "", "40.0%"]
    assert second[3] == "2.00 x"
