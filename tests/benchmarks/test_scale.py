from pathlib import Path

from benchmarks.scale import tabulate, write_images


def test_no_two_images_are_the_same_and_all_classes_have_some(tmp_path: Path) -> None:
    write_images(tmp_path / "images", 1_100)
    files = list((tmp_path / "images").glob("*/*.jpg"))
    assert len(files) == len({file.read_bytes() for file in files}) == 1_100
    assert len(list((tmp_path / "images").iterdir())) == 1_000


def test_the_exponent_tells_twice_the_images_from_twice_the_value() -> None:
    found = {10: {"linear": 1.0, "flat": 5.0}, 40: {"linear": 4.0, "flat": 5.0, "new": 1.0}}
    table = tabulate(found)
    assert [row[-1] for row in table.rows] == ["1.00", "0.00", ""]
