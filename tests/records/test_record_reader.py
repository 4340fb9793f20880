from __future__ import annotations

import random
from pathlib import Path

import pytest

from components.contract.errors import StorageError
from components.records.record_reader import read_features
from components.records.shortened_records import read_shortened
from components.records.tfrecord import RecordWriter, Value, serialize

# Sizes around the lengths that need one byte more to be written down.
IMAGES = [b"", b"x", b"x" * 127, b"x" * 128, b"x" * 16_384, random.Random(0).randbytes(3_000_000)]
NAMES = ["a/1.png", "größer/猫.jpg", "byte \udcff.jpg", "x" * 300, "", "b"]


def make_features(number: int) -> dict[str, Value]:
    return {
        "image/encoded": IMAGES[number],
        "image/filename": NAMES[number],
        "h": number,
        "l": 0.5,
    }


def write_shard(path: Path) -> list[bytes]:
    """Write a record for each image; return the names as they are stored."""
    with RecordWriter(str(path)) as writer:
        for number in range(len(IMAGES)):
            writer.write(serialize(make_features(number)))
    return [name.encode("utf-8", "surrogateescape") for name in NAMES]


def test_features_read_back_as_they_were_written(tmp_path: Path) -> None:
    stored = write_shard(tmp_path / "shard")
    read = read_features(str(tmp_path / "shard"), (b"image/filename", b"image/encoded", b"none"))
    assert [{name: bytes(value) for name, value in features.items()} for features in read] == [
        {b"image/filename": name, b"image/encoded": image}
        for name, image in zip(stored, IMAGES, strict=True)
    ]


@pytest.mark.parametrize("left", [3_000_000, 5, -1])
def test_a_file_that_is_cut_off_is_one_sentence(tmp_path: Path, left: int) -> None:
    path = tmp_path / "shard"
    write_shard(path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(StorageError, match="is cut off"):
        list(read_features(str(path), (b"image/filename",)))


def test_a_shortened_record_is_one_of_the_shorter_image(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard")
    read = list(read_shortened(str(tmp_path / "shard"), "image/encoded", 8))
    expected = [
        serialize({**make_features(number), "image/encoded": image[:8]})
        for number, image in enumerate(IMAGES)
    ]
    assert [record for record, _ in read] == [b"".join(parts) for parts in expected]
    assert [length for _, length in read] == [len(image) for image in IMAGES]


def test_a_record_without_the_feature_stays_as_it_is(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard")
    read = list(read_shortened(str(tmp_path / "shard"), "image", 8))
    whole = [b"".join(serialize(make_features(number))) for number in range(len(IMAGES))]
    assert read == [(record, 0) for record in whole]


def test_an_empty_shard(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(b"")
    assert list(read_features(str(tmp_path / "shard"), (b"h",))) == []
