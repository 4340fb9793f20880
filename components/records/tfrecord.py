"""TFRecord files of `tf.train.Example`s, written without a copy of the image's bytes.

Building the protocol buffer, serializing it and handing it to TensorFlow copies each image four
times, which costs more than its SHA-256. Here the file's own bytes go to one system call.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import google_crc32c

from components.storage.artifact_files import on_disk, open_file

# Lists of values of one type: the fields of a feature.
_TEXT, _FLOAT, _NUMBER = 1, 2, 3

# What a writer keeps back; the system takes 1,024 parts at once, a record has six.
_BUFFER_BYTES = 2**20
_BUFFER_PARTS = 900
# Below this size a copy costs less than a checksum and a pointer for each of the parts.
_JOINED_BYTES = 2**14

Value = bytes | str | int | float


def serialize(features: Mapping[str, Value]) -> list[bytes]:
    """Serialize a `tf.train.Example` with one value per feature.

    Returns:
        Consecutive parts of the bytes that `SerializeToString(deterministic=True)` gives; bytes
        values are parts of their own, as they were given.

    Source: `tensorflow/core/example/feature.proto` and the protocol buffers' wire format.
    """
    parts: list[bytes] = []
    joined: list[bytes] = []
    for name in sorted(features):
        value = features[name]
        if isinstance(value, bytes):
            parts += (b"".join((*joined, _entry_head(name, _TEXT, len(value)))), value)
            joined = []
        elif isinstance(value, int):
            joined.append(_number_entry(name, value))
        else:
            joined.append(_entry(name, value))
    parts.append(b"".join(joined))
    return [field_head(1, sum(map(len, parts))), *parts]


def _entry(name: str, value: str | float) -> bytes:
    """Return an entry of the map of features."""
    if isinstance(value, float):
        return _entry_head(name, _FLOAT, 4) + struct.pack("<f", value)
    # Names that are not valid UTF-8 reach Python as surrogates; the record keeps their bytes.
    payload = value.encode("utf-8", "surrogateescape")
    return _entry_head(name, _TEXT, len(payload)) + payload


# Sides, channels and labels of images are the same few numbers.
@functools.lru_cache(maxsize=4096)
def _number_entry(name: str, value: int) -> bytes:
    payload = _varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    return _entry_head(name, _NUMBER, len(payload)) + payload


# All but the image are short: the same few beginnings come back in every record.
@functools.lru_cache(maxsize=4096)
def _entry_head(name: str, kind: int, length: int) -> bytes:
    """Return what comes before a value of `length` bytes, from the inside out."""
    key = name.encode()
    # The list, the feature, the entry's value, the entry.
    before = field_head(1, length)
    before = field_head(kind, len(before) + length) + before
    before = field_head(2, len(before) + length) + before
    before = field_head(1, len(key)) + key + before
    return field_head(1, len(before) + length) + before


def field_head(number: int, length: int) -> bytes:
    """Return the tag and the length that precede a field of wire type 2."""
    return bytes((number << 3 | 2,)) + _varint(length)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


HEADER_BYTES = 12
"""Size of what precedes the data of a record: their length and its checksum."""


class RecordWriter:
    """Writes an uncompressed TFRecord file, on disk or through TensorFlow's file systems."""

    def __init__(self, path: str) -> None:
        """Create the file at `path`, a local path or a URL; an existing one is overwritten."""
        self._file: Any
        self._parts: list[bytes] = []
        self._size = 0
        self.position = 0
        """Bytes written so far, which is where the next record begins."""
        self._local = on_disk(path)
        # Unbuffered, as records go to the system in parts; closed in __exit__.
        self._file = open(path, "wb", buffering=0) if self._local else open_file(path, "wb")  # noqa: SIM115

    def write(self, record: Sequence[bytes]) -> None:
        """Append one record, given in parts.

        Source of the framing: `tensorflow/core/lib/io/record_writer.h`.
        """
        size = sum(map(len, record))
        if size < _JOINED_BYTES:
            record = (b"".join(record),)
        length = struct.pack("<Q", size)
        crc = 0
        for part in record:
            crc = google_crc32c.extend(crc, part)
        head = length + _masked(google_crc32c.value(length))
        self._parts += (head, *record, _masked(crc))
        self._size += 16 + size
        self.position += 16 + size
        if self._size >= _BUFFER_BYTES or len(self._parts) > _BUFFER_PARTS:
            self._flush()

    def _flush(self) -> None:
        """Hand all parts to the system at once: a call for each record is slow for small ones."""
        parts, size = self._parts, self._size
        self._parts, self._size = [], 0
        if not self._local:
            self._file.write(b"".join(parts))
            return
        written = os.writev(self._file.fileno(), parts)
        if written < size:
            # A full disk, a signal or a network file system may take a part only.
            rest = memoryview(b"".join(parts))
            while written < size:
                written += os.write(self._file.fileno(), rest[written:])

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write what is left, unless an error spoilt the file, and close it."""
        try:
            if error is None:
                self._flush()
        finally:
            self._file.close()


def _masked(crc: int) -> bytes:
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
