"""Reads records without their images, of which statistics need the first bytes and the length.

A record of 110 KB becomes one of 500 bytes, so that neither Python nor Beam handles pixels.
"""

from __future__ import annotations

from collections.abc import Iterator

from components.records.damage import reading
from components.records.record_reader import read_records, read_varint
from components.records.tfrecord import field_head, serialize


def read_shortened(path: str, name: str, kept: int) -> Iterator[tuple[bytes, int]]:
    """Yield each example of a shard with a feature cut to its first bytes, and its whole length.

    Args:
        path: path or URL of an uncompressed TFRecord file.
        name: key of the feature, which has one value, of bytes.
        kept: bytes of the value that stay.

    Yields:
        The serialized example, and the bytes of the value; 0 where the feature is missing.

    Raises:
        StorageError: the file is cut off or damaged.
    """
    key = field_head(1, len(name)) + name.encode()
    with reading(path):
        for record in read_records(path):
            yield _shorten(record, name, key, kept)


def _shorten(record: memoryview, name: str, key: bytes, kept: int) -> tuple[bytes, int]:
    """Rebuild the example around its one long feature.

    Source: `tensorflow/core/example/feature.proto` and the protocol buffers' wire format.
    """
    _, begin = read_varint(record, 1)
    position = begin
    while position < len(record):
        length, start = read_varint(record, position + 1)
        end = start + length
        if end > len(record):
            raise ValueError("a feature ends beyond its record")
        if record[start : start + len(key)] == key:
            value = _read_value(record[start + len(key) : end])
            [_, *entry] = serialize({name: bytes(value[:kept])})
            features = b"".join([record[begin:position], *entry, record[end:]])
            return field_head(1, len(features)) + features, len(value)
        position = end
    return bytes(record), 0


def _read_value(message: memoryview) -> memoryview:
    """Return the value of a feature: it lies in a list, in the feature, in the entry of a map."""
    for _ in range(3):
        length, start = read_varint(message, 1)
        message = message[start : start + length]
    return message
