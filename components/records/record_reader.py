"""Reads records in place: on disk without TensorFlow, which takes seconds to load.

Features are looked up in the mapped file: of an image that nobody asks for, hardly a byte is read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterator

from components.contract.errors import StorageError
from components.records.damage import reading
from components.records.tfrecord import HEADER_BYTES
from components.storage.artifact_files import on_disk

_LENGTH_BYTES, _FOOTER_BYTES = 8, 4
# Wire type of everything in an example that is not a number.
_DELIMITED = 2
_MOST_BITS = 64
# A request to a bucket takes 30 ms, however little is asked for.
_DOWNLOAD_BYTES = 2**23


def read_features(path: str, names: Collection[bytes]) -> Iterator[dict[bytes, memoryview]]:
    """Yield some features of each example of a shard, those whose values are bytes.

    Args:
        path: an uncompressed TFRecord file on this machine.
        names: keys of the features; each has one value.

    Raises:
        StorageError: the file is cut off or damaged.
    """
    with reading(path):
        for record in read_records(path):
            yield dict(_find_features(record, names))


def read_records(path: str) -> Iterator[memoryview]:
    """Yield the data of each record; checksums are not looked at, images would be read for them.

    Source of the framing: `tensorflow/core/lib/io/record_writer.h`.

    Args:
        path: an uncompressed TFRecord file; one in a bucket is read whole, by TensorFlow.

    Raises:
        StorageError: the file is cut off.
    """
    if not on_disk(path):
        yield from _download_records(path)
        return
    if not os.path.getsize(path):
        return
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    position = 0
    while position < len(data):
        start = position + HEADER_BYTES
        # Where the header itself is cut off, its end lies beyond that of the file.
        length = int.from_bytes(data[position : position + _LENGTH_BYTES], "little")
        position = start + length + _FOOTER_BYTES
        if position > len(data):
            raise StorageError(f"{path} is cut off: remove the output folder, and run again.")
        yield data[start : start + length]


def _download_records(path: str) -> Iterator[memoryview]:
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(path, buffer_size=_DOWNLOAD_BYTES).as_numpy_iterator():
        yield memoryview(record)


def _find_features(
    example: memoryview, names: Collection[bytes]
) -> Iterator[tuple[bytes, memoryview]]:
    """Yield name and value of the features that are asked for.

    Source: `tensorflow/core/example/feature.proto` and the protocol buffers' wire format.
    """
    for features in _fields(example):
        for entry in _fields(features):
            name, feature = _fields(entry)
            if bytes(name) in names:
                [values] = _fields(feature)
                [value] = _fields(values)
                yield bytes(name), value


def _fields(message: memoryview) -> Iterator[memoryview]:
    """Yield the content of each field of a message whose fields all have a length."""
    position = 0
    while position < len(message):
        if message[position] & 7 != _DELIMITED:
            raise ValueError("a field is a number")
        length, start = read_varint(message, position + 1)
        position = start + length
        if position > len(message):
            raise ValueError("a field ends beyond its message")
        yield message[start:position]


def read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return value, position
        if shift > _MOST_BITS:
            raise ValueError("a number does not end")
