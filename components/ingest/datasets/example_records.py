"""`tf.train.Example`s in TFRecord files, gzipped or not, read without TensorFlow."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import google_crc32c

from components.ingest.datasets.record import DamagedShardError, Format, Record, Shard, read_ranges
from components.records.tfrecord import HEADER_BYTES, masked_crc
from components.storage.retry import digest

_FOOTER_BYTES = 4
# What a record may hold beside its image. No protocol buffer has more than 2 GiB.
_OTHER_BYTES = 2**24
_LONGEST = 2**31
# Bytes of an image that are looked for in its record.
_SOUGHT = 32

_TOO_LARGE = "the record has {:,.1f} MiB"
_WRONG_CRC = "its checksum is wrong"


def peek(shard: Shard) -> Iterator[dict[str, Any]]:
    """Yield the features of each example.

    Raises:
        DamagedShardError: a record is damaged, or holds something else.
    """
    with shard.open() as stream:
        for _, data in _frames(stream, shard):
            if isinstance(data, str):
                raise DamagedShardError(data)
            example = _parse(data)
            if example.feature_lists:
                raise DamagedShardError("it holds SequenceExamples, not Examples of one image")
            features = example.features.feature
            yield {name: _value(features[name]) for name in sorted(features)}


def scan(shard: Shard, image: str, names: Sequence[str]) -> Iterator[Record]:
    """Yield the records of a shard; verify their checksums."""
    with shard.open() as stream:
        for position, data in _frames(stream, shard):
            place = str(position)
            if isinstance(data, str):
                yield Record(place, 0, {}, data)
                continue
            try:
                features = _parse(data).features.feature
            except Exception:  # Each of the implementations of protocol buffers has its own.
                yield Record(place, 0, {}, "it is not a tf.train.Example")
                continue
            fields = {name: _value(features[name]) for name in names if name in features}
            pixels = features[image].bytes_list.value if image in features else ()
            if len(pixels) > 1:
                yield Record(place, 0, {}, f"it has {len(pixels):,} images: store one in a record")
                continue
            yield _locate(position, data, pixels[0], fields) if pixels else Record("", None, fields)


def _locate(position: int, data: bytes, pixels: bytes, fields: dict[str, Any]) -> Record:
    """Return a record with the offset and size of its image."""
    start = data.find(pixels[:_SOUGHT])
    while not data.startswith(pixels, start):
        start = data.find(pixels[:_SOUGHT], start + 1)
    place = f"{position + HEADER_BYTES + start} {len(pixels)}"
    return Record(place, len(pixels), fields, checksum=f"crc32c:{digest(pixels, 'crc32c')}")


def _frames(stream: BinaryIO, shard: Shard) -> Iterator[tuple[int, bytes | str]]:
    """Yield the offset of each record from here on, and its data or why there are none.

    Source of the framing: `tensorflow/core/lib/io/record_writer.h`.

    Raises:
        DamagedShardError: the file is cut, or a length is damaged.
    """
    position = stream.tell()
    while header := stream.read(HEADER_BYTES):
        length = int.from_bytes(header[:8], "little")
        if len(header) < HEADER_BYTES:
            raise DamagedShardError("the file is cut")
        if masked_crc(google_crc32c.value(header[:8])) != header[8:] or length > _LONGEST:
            raise DamagedShardError("the length of a record is damaged")
        end = position + HEADER_BYTES + length + _FOOTER_BYTES
        data: bytes | str
        if length <= shard.most_bytes + _OTHER_BYTES:
            data = stream.read(length)
            if len(data) < length:
                raise DamagedShardError("the file is cut")
        else:
            data = _TOO_LARGE.format(length / 2**20)
            stream.seek(end - _FOOTER_BYTES)
        if len(footer := stream.read(_FOOTER_BYTES)) < _FOOTER_BYTES:
            raise DamagedShardError("the file is cut")
        if isinstance(data, bytes) and masked_crc(google_crc32c.value(data)) != footer:
            data = _WRONG_CRC
        yield position, data
        position = end


def _value(feature: Any) -> Any:
    """Return the values of a feature: one alone as it is, several or none as a list."""
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    return values[0] if len(values) == 1 else values


def _parse(data: bytes) -> Any:
    return _message().FromString(data)


# With a SequenceExample's lists as bytes. Source: `tensorflow/core/example/example.proto` and
# `feature.proto`.
_PROTO = """
name: "shards.proto" package: "s" syntax: "proto3"
message_type {
  name: "Bytes" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES }
}
message_type {
  name: "Floats" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT }
}
message_type {
  name: "Ints" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 }
}
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".s.Bytes" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: ".s.Floats" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".s.Ints" oneof_index: 0 }
}
message_type {
  name: "Features"
  field {
    name: "feature" number: 1 label: LABEL_REPEATED
    type: TYPE_MESSAGE type_name: ".s.Features.FeatureEntry"
  }
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".s.Feature" }
  }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".s.Features" }
  field { name: "feature_lists" number: 2 type: TYPE_BYTES }
}
"""


@functools.cache
def _message() -> Any:
    """Return the class of `tf.train.Example`; TensorFlow's own takes seconds to import."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("s.Example"))


FORMAT = Format("TFRecord files of tf.train.Examples", peek, scan, read_ranges)
