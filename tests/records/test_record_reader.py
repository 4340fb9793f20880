from __future__ import annotations

import random
from pathlib import Path

import pytest

from components.contract.errors import StorageError
from components.records.record_reader import read_features
from components.records.tfrecord import RecordWriter, Value, serialize

# Sizes around the lengths that need one byte more to be written down.
IMAGES = [b"", b"x", b"x" * 127, b"x" * 128, b"x" * 16_384, random.Random(0).randbytes(3_000_000)]
NAMES = ["a/1.png", "größer/猫.jpg", "byte \udcff.jpg", "x" * 300, "", "b"]


def write_shard(path: Path) -> list[bytes]:
    """Write a record for each image; return the names as they are stored."""
    with RecordWriter(str(path)) as writer:
        for number, (image, name) in enumerate(zip(IMAGES, NAMES, strict=True)):
            features: dict[str, Value] = {
                "image/encoded": image,
                "image/filename": name,
                "h": number,
                "l": 0.5,
            }
            writer.write(serialize(features))
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


def test_an_empty_shard(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(b"")
    assert list(read_features(str(tmp_path / "shard"), (b"h",))) == []
