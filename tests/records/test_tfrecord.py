"""Records and their indexes: what is written, by TensorFlow's own classes, and what is read."""

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from components.contract.errors import StorageError
from components.records.record_index import write_indexed_shard
from components.records.shard_files import list_shards, write_index
from components.records.tfrecord import (
    RecordWriter,
    Value,
    read_features,
    read_shortened,
    serialize,
)
from components.trainer.input.shards import RecordTable, Shards

# Sizes at which the encoded length grows by a byte.
IMAGES = [b"", b"x", b"x" * 127, b"x" * 128, b"x" * 16_384, random.Random(0).randbytes(3_000_000)]
NUMBERS: list[Value] = [0, 1, -1, 127, 128, 2**62, -(2**63), 0.0, 1.5, -3.25e-12]
TEXTS: list[Value] = ["", "cat", "Katze, größer", "猫"]


def reference(features: dict[str, Value]) -> bytes:
    """Serialize with TensorFlow's own classes."""
    example = tf.train.Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        if isinstance(value, float):
            feature.float_list.value.append(value)
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.bytes_list.value.append(value if isinstance(value, bytes) else value.encode())
    return bytes(example.SerializeToString(deterministic=True))


@pytest.mark.parametrize("value", [*IMAGES, *NUMBERS, *TEXTS], ids=lambda v: str(v)[:12])
def test_bytes_match_those_of_tensorflow(value: Value) -> None:
    features: dict[str, Value] = {"z": value, "image/encoded": b"\xff\xd8" * 500, "a/b": 7}
    assert b"".join(serialize(features)) == reference(features)


def test_tensorflow_reads_the_file(tmp_path: Path) -> None:
    records = [b"", b"one", random.Random(0).randbytes(200_000)]
    with RecordWriter(str(tmp_path / "shard")) as writer:
        for record in records:
            writer.write([record[:1], record[1:]])
    # It verifies all checksums.
    read = tf.data.TFRecordDataset(str(tmp_path / "shard")).as_numpy_iterator()
    assert list(read) == records


def record(data: bytes) -> bytes:
    """Frame data that need not be an example."""
    return len(data).to_bytes(8, "little") + bytes(4) + data + bytes(4)


def saved(rows: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, rows)
    return buffer.getvalue()


NAMES = ["a/1.png", "größer/猫.jpg", "byte \udcff.jpg", "x" * 300, "", "b"]


def make_features(number: int) -> dict[str, Value]:
    return {"image/encoded": IMAGES[number], "image/filename": NAMES[number], "h": number, "l": 0.5}


def write_shard(path: Path) -> list[bytes]:
    """Write a record for each image; return the stored names."""
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


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    write_shard(path)
    for left in (-1, 5):
        path.write_bytes(path.read_bytes()[:left])
        with pytest.raises(StorageError, match="is truncated"):
            list(read_features(str(path), (b"image/filename",)))
    path.write_bytes(b"")
    assert list(read_features(str(path), (b"image/filename",))) == []


def test_a_shortened_record_equals_one_of_the_shortened_image(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard")
    read = list(read_shortened(str(tmp_path / "shard"), "image/encoded", 8))
    expected = [
        serialize({**make_features(number), "image/encoded": image[:8]})
        for number, image in enumerate(IMAGES)
    ]
    assert [record for record, _ in read] == [b"".join(parts) for parts in expected]
    assert [length for _, length in read] == [len(image) for image in IMAGES]
    whole = [b"".join(serialize(make_features(number))) for number in range(len(IMAGES))]
    others = read_shortened(str(tmp_path / "shard"), "image", 8)
    assert list(others) == [(record, 0) for record in whole]


INDEX = "records/train/shard.npy"
ROWS = np.array([[12, 5, 0]])
DAMAGE = {
    "another wire type": ("Split-train/shard", record(b"\x08\x01")),
    "a field ends beyond its record": ("Split-train/shard", record(b"\x0a\x7f" + b"x" * 9)),
    "a length without an end": ("Split-train/shard", record(b"\x0a" + b"\xff" * 99)),
    "not an array": (INDEX, b"\x93NUMPY"),
    "an array of another shape": (INDEX, saved(ROWS[:, :2])),
    "images behind their shard": (INDEX, saved(ROWS * 10_000)),
    "more images than are counted": (INDEX, saved(np.repeat(ROWS, 2, axis=0))),
    "no JSON": ("index.json", b'{"splits": '),
    "another split": ("index.json", b'{"splits": {"eval": {"shard": 1}}}'),
    "a count that is text": ("index.json", b'{"splits": {"train": {"shard": "1"}}}'),
    "no labels": ("index.json", b'{"splits": {"train": {"shard": 1}}, "labels": 3}'),
    "another shard": ("index.json", b'{"splits": {"train": {"gone": 1}}}'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_an_error(tmp_path: Path, damage: str) -> None:
    """Whichever reader finds it first; all of them read intact files."""
    uri = str(tmp_path)
    write_indexed_shard(
        uri, "train", "shard", [{"image/encoded": b"x" * 20, "image/class/label": 0}]
    )
    write_index(uri, {"train": {"shard": 1}}, labels={"train": {"cat": 1}})
    (tmp_path / "records/train/gone.npy").write_bytes(saved(ROWS))
    read_all(uri)
    name, content = DAMAGE[damage]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StorageError, match=r": remove the output folder, and run again\.$"):
        read_all(uri)


def test_a_split_without_shards_has_no_records(tmp_path: Path) -> None:
    write_index(str(tmp_path), {"train": {}})
    table = RecordTable.read(Shards.of_pattern(f"{tmp_path}/Split-train/*"))
    assert (len(table.shard), len(table.label)) == (0, 0)


def read_all(uri: str) -> None:
    """Read shards and indexes as the pipeline does."""
    for shard in list_shards(uri, "train"):
        RecordTable.read(Shards.of_pattern(f"{uri}/Split-train/*"))
        list(read_features(shard, (b"image/encoded",)))
        list(read_shortened(shard, "image/encoded", 8))
