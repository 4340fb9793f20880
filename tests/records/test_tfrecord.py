from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import tensorflow as tf

from components.records.tfrecord import RecordWriter, Value, serialize

# Sizes at which the encoded length grows by a byte.
BYTES = [
    b"",
    b"x",
    b"x" * 100,
    b"x" * 127,
    b"x" * 128,
    b"x" * 16_384,
    random.Random(0).randbytes(3_000_000),
]
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


@pytest.mark.parametrize("value", [*BYTES, *NUMBERS, *TEXTS], ids=lambda v: str(v)[:12])
def test_bytes_match_those_of_tensorflow(value: Value) -> None:
    features: dict[str, Value] = {"z": value, "image/encoded": b"\xff\xd8" * 500, "a/b": 7}
    assert b"".join(serialize(features)) == reference(features)


def test_bytes_are_not_copied() -> None:
    value = random.Random(0).randbytes(1000)
    assert any(part is value for part in serialize({"image/encoded": value}))


def test_names_that_are_not_utf8_keep_their_bytes() -> None:
    record = b"".join(serialize({"name": os.fsdecode(b"caf\xe9.jpg")}))
    feature = tf.train.Example.FromString(record).features.feature["name"]
    assert feature.bytes_list.value[0] == b"caf\xe9.jpg"


def test_tensorflow_reads_the_file(tmp_path: Path) -> None:
    records = [b"", b"one", random.Random(0).randbytes(200_000)]
    with RecordWriter(str(tmp_path / "shard")) as writer:
        for record in records:
            writer.write([record[:1], record[1:]])
    # It verifies all checksums.
    read = tf.data.TFRecordDataset(str(tmp_path / "shard")).as_numpy_iterator()
    assert list(read) == records


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "writev", lambda file, parts: write(file, b"".join(parts)[:7]))
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:1000]))
    with RecordWriter(str(tmp_path / "shard")) as writer:
        writer.write([b"x" * 5000, b"y"])
    [record] = tf.data.TFRecordDataset(str(tmp_path / "shard")).as_numpy_iterator()
    assert record == b"x" * 5000 + b"y"
