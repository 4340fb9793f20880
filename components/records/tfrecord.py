"""TFRecord files of `tf.train.Example`s, written with one copy of each image and read in place.

Building, serializing and writing protocol buffers copies each image four times, which costs more
than its SHA-256. Here the file's own bytes go to the buffer. Readers find features in the mapped
file, so images that nobody uses are hardly read, and TensorFlow, which takes seconds to load, is
needed for buckets only. A truncated or damaged file raises a `StorageError`.
"""

import functools
import mmap
import os
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import google_crc32c

from components.contract.artifact_files import on_disk, open_file, reading
from components.contract.errors import StorageError

HEADER_BYTES = 12
"""Bytes before the data of a record: its length and that length's checksum."""
_LENGTH_BYTES, _FOOTER_BYTES = 8, 4
# Wire type of all fields of an example except numbers.
_DELIMITED = 2
# A request to a bucket takes 30 ms, however small.
_DOWNLOAD_BYTES = 2**23

# Fields of a feature: a list of values of one type.
_TEXT, _FLOAT, _NUMBER = 1, 2, 3

# The system takes long writes a quarter faster, the copy to the buffer included.
_BUFFER_BYTES = 2**20
# Below this size, copying costs less than a call for each part.
_JOINED_BYTES = 2**14

# Of a number of variable length.
_MOST_BITS = 64

Value = bytes | str | int | float


def serialize(features: Mapping[str, Value]) -> list[bytes]:
    """Serialize a `tf.train.Example` with one value per feature.

    Return consecutive parts of the output of `SerializeToString(deterministic=True)`; values of
    type bytes are parts of their own, not copied.

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
    if isinstance(value, float):
        return _entry_head(name, _FLOAT, 4) + struct.pack("<f", value)
    # File names that are not valid UTF-8 reach Python as surrogates; the record keeps their bytes.
    payload = value.encode("utf-8", "surrogateescape")
    return _entry_head(name, _TEXT, len(payload)) + payload


# Heights, widths, channels and labels take few values.
@functools.lru_cache(maxsize=4096)
def _number_entry(name: str, value: int) -> bytes:
    payload = encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    return _entry_head(name, _NUMBER, len(payload)) + payload


# Short values have few lengths, so the same heads recur in every record.
@functools.lru_cache(maxsize=4096)
def _entry_head(name: str, kind: int, length: int) -> bytes:
    """Return the bytes before a value of `length` bytes, built from the inside out."""
    key = name.encode()
    # The list, the feature, the entry's value, the entry.
    before = field_head(1, length)
    before = field_head(kind, len(before) + length) + before
    before = field_head(2, len(before) + length) + before
    before = field_head(1, len(key)) + key + before
    return field_head(1, len(before) + length) + before


def field_head(number: int, length: int) -> bytes:
    """Return the tag and length before a field of wire type 2."""
    return bytes((number << 3 | 2,)) + encode_varint(length)


class RecordWriter:
    """Writes an uncompressed TFRecord file, on disk or through TensorFlow's file systems."""

    def __init__(self, path: str) -> None:
        """Create or overwrite the file at `path`, a local path or URL."""
        self.position = 0
        """Offset of the next record, bytes."""
        self._on_disk = on_disk(path)
        # Closed in __exit__.
        self._file: Any = (
            open(path, "wb", buffering=_BUFFER_BYTES) if self._on_disk else open_file(path, "wb")  # noqa: SIM115
        )

    def write(self, record: Sequence[bytes]) -> None:
        """Append one record, given in parts."""
        self.append(frame(record))

    def append(self, framed: Sequence[bytes | memoryview]) -> None:
        """Append the parts of a record with its frame, as another file may have it."""
        # Each write through TensorFlow is a call of its own.
        for part in framed if self._on_disk else (b"".join(framed),):
            self._file.write(part)
        self.position += sum(map(len, framed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def frame(record: Sequence[bytes]) -> Sequence[bytes]:
    """Put a record, given in parts, between its length and its checksum.

    Source of the format: `tensorflow/core/lib/io/record_writer.h`.
    """
    size = sum(map(len, record))
    if size < _JOINED_BYTES:
        record = (b"".join(record),)
    length = struct.pack("<Q", size)
    crc = 0
    for part in record:
        crc = google_crc32c.extend(crc, part)
    return length + masked_crc(google_crc32c.value(length)), *record, masked_crc(crc)


def masked_crc(crc: int) -> bytes:
    """Return a CRC-32C as TFRecord files store it."""
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative, seven bits per byte, as protocol buffers do."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position and the position after it.

    Raises `IndexError` if the message ends within the number, `ValueError` above 64 bits.
    """
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return value, position
        if shift > _MOST_BITS:
            raise ValueError("a number does not end")


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

    records = without_tuning(tf.data.TFRecordDataset(path, buffer_size=_DOWNLOAD_BYTES))
    for record in records.as_numpy_iterator():
        yield memoryview(b"".join(frame([record])))


def without_tuning(dataset: Any) -> Any:
    """Return a `tf.data.Dataset` without autotuning, whose next turn the end of an iterator awaits.

    That may double the time of a loop. A `map` then runs in parallel only if it says so.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


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
