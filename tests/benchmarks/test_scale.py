from pathlib import Path

import pytest

from benchmarks.scale import compare_grown, tabulate, write_images


@pytest.mark.slow
def test_no_two_images_are_the_same_and_all_classes_have_some(tmp_path: Path) -> None:
    write_images(tmp_path / "images", 1_100)
    write_images(tmp_path / "images", 11, first=1_100)
    files = list((tmp_path / "images").glob("*/*.jpg"))
    assert len(files) == len({file.read_bytes() for file in files}) == 1_111
    assert len(list((tmp_path / "images").iterdir())) == 1_000


def test_a_grown_run_is_compared_step_by_step() -> None:
    whole = {"seconds": 20.0, "peak MB": 5.0, "s of Transform": 10.0, "s of Pusher": None}
    grown = {"seconds": 5.0, "peak MB": 5.0, "s of Transform": 0.5, "s of Pusher": 1.0}
    assert compare_grown(whole, grown) == {
        "seconds: 1% more / all": 0.25,
        "s of Transform: 1% more / all": 0.05,
    }


def test_the_exponent_tells_twice_the_images_from_twice_the_value() -> None:
    found = {10: {"linear": 1.0, "flat": 5.0}, 40: {"linear": 4.0, "flat": 5.0, "new": 1.0}}
    table = tabulate(found)
    assert [row[-1] for row in table.rows] == ["1.00", "0.00", ""]
