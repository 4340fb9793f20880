"""Reads records in place: files on disk without TensorFlow, which takes seconds to load.

Features are found in the mapped file, so images that nobody uses are hardly read. A truncated or
damaged file raises a `StorageError`.
"""

import mmap
import os
from collections.abc import Collection, Iterator

from components.contract.artifact_files import on_disk, reading
from components.contract.errors import StorageError
from components.records.tfrecord import (
    HEADER_BYTES,
    field_head,
    frame,
    read_varint,
    serialize,
)

_LENGTH_BYTES, _FOOTER_BYTES = 8, 4
# Wire type of all fields of an example except numbers.
_DELIMITED = 2
# A request to a bucket takes 30 ms, however small.
_DOWNLOAD_BYTES = 2**23


def read_features(path: str, names: Collection[bytes]) -> Iterator[dict[bytes, memoryview]]:
    """Yield the features in `names`, of one bytes value each, of each example of a shard."""
    with reading(path):
        for record in read_records(path):
            yield dict(_find_features(record, names))


def read_shortened(path: str, name: str, kept: int) -> Iterator[tuple[bytes, int]]:
    """Yield each serialized example with feature `name` cut to `kept` bytes, and its full length.

    Statistics need no more of an image: a record of 110 KB becomes one of 500 bytes. The length is
    0 if the feature is missing.
    """
    key = field_head(1, len(name)) + name.encode()
    with reading(path):
        for record in read_records(path):
            yield _shorten(record, name, key, kept)


def read_records(path: str) -> Iterator[memoryview]:
    """Yield the data of each record of a shard."""
    return (framed[HEADER_BYTES:-_FOOTER_BYTES] for framed in read_frames(path))


def read_frames(path: str) -> Iterator[memoryview]:
    """Yield each record with its length and its checksum, which is verified in a bucket only.

    Source of the format: `tensorflow/core/lib/io/record_writer.h`.
    """
    if not on_disk(path):
        yield from _download_frames(path)
        return
    if not os.path.getsize(path):
        return
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    position = 0
    while position < len(data):
        start = position
        # The end of a truncated header lies beyond the end of the file.
        length = int.from_bytes(data[start : start + _LENGTH_BYTES], "little")
        position += HEADER_BYTES + length + _FOOTER_BYTES
        if position > len(data):
            raise StorageError(f"{path} is truncated: remove the output folder, and run again.")
        yield data[start:position]


def _download_frames(path: str) -> Iterator[memoryview]:
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(path, buffer_size=_DOWNLOAD_BYTES).as_numpy_iterator():
        yield memoryview(b"".join(frame([record])))


def _find_features(
    example: memoryview, names: Collection[bytes]
) -> Iterator[tuple[bytes, memoryview]]:
    """Yield name and value of the features in `names`.

    Source: `tensorflow/core/example/feature.proto` and the protocol buffers' wire format.
    """
    for features in _fields(example):
        for entry in _fields(features):
            name, feature = _fields(entry)
            if bytes(name) in names:
                [values] = _fields(feature)
                [value] = _fields(values)
                yield bytes(name), value


def _shorten(record: memoryview, name: str, key: bytes, kept: int) -> tuple[bytes, int]:
    """Rebuild the example around its one long feature."""
    _, begin = read_varint(record, 1)
    position = begin
    while position < len(record):
        length, start = read_varint(record, position + 1)
        end = start + length
        if end > len(record):
            raise ValueError("a feature ends beyond its record")
        if record[start : start + len(key)] == key:
            value = record[start + len(key) : end]
            for _ in range(3):  # The entry's value, the feature, the list.
                [value] = _fields(value)
            [_, *entry] = serialize({name: bytes(value[:kept])})
            features = b"".join([record[begin:position], *entry, record[end:]])
            return field_head(1, len(features)) + features, len(value)
        position = end
    return bytes(record), 0


def _fields(message: memoryview) -> Iterator[memoryview]:
    """Yield the content of each field of a message that has only length-delimited fields."""
    position = 0
    while position < len(message):
        if message[position] & 7 != _DELIMITED:
            raise ValueError("a field is a number")
        length, start = read_varint(message, position + 1)
        position = start + length
        if position > len(message):
            raise ValueError("a field ends beyond its message")
        yield message[start:position]
