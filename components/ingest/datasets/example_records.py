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
            found = _parse(data)
            if found.feature_lists:
                raise DamagedShardError("it holds SequenceExamples, not Examples of one image")
            features = found.features.feature
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
            found = {name: _value(features[name]) for name in names if name in features}
            pixels = features[image].bytes_list.value if image in features else ()
            if len(pixels) > 1:
                yield Record(place, 0, {}, f"it has {len(pixels):,} images: store one in a record")
                continue
            yield _locate(position, data, pixels[0], found) if pixels else Record("", None, found)


def _locate(position: int, data: bytes, pixels: bytes, found: dict[str, Any]) -> Record:
    """Return a record with the offset and size of its image."""
    start = data.find(pixels[:_SOUGHT])
    while not data.startswith(pixels, start):
        start = data.find(pixels[:_SOUGHT], start + 1)
    place = f"{position + HEADER_BYTES + start} {len(pixels)}"
    return Record(place, len(pixels), found, checksum=f"crc32c:{digest(pixels, 'crc32c')}")


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


@functools.cache
def _message() -> Any:
    """Return the class of `tf.train.Example`, with a SequenceExample's lists as bytes.

    Source: `tensorflow/core/example/example.proto` and `feature.proto`. TensorFlow's own takes
    seconds to import.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shards.proto", package="s", syntax="proto3")

    def add(owner: Any, *fields: tuple[str, Any, bool]) -> Any:
        for number, (name, kind, repeated) in enumerate(fields, start=1):
            label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            made = owner.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                made.type, made.type_name = field.TYPE_MESSAGE, f".s.{kind}"
            else:
                made.type = kind
        return owner

    message = file.message_type.add
    for name, kind in (
        ("Bytes", field.TYPE_BYTES),
        ("Floats", field.TYPE_FLOAT),
        ("Ints", field.TYPE_INT64),
    ):
        add(message(name=name), ("value", kind, True))
    kinds = (("bytes_list", "Bytes"), ("float_list", "Floats"), ("int64_list", "Ints"))
    feature = add(message(name="Feature"), *((name, kind, False) for name, kind in kinds))
    feature.oneof_decl.add(name="kind")
    for one in feature.field:
        one.oneof_index = 0
    features = add(message(name="Features"), ("feature", "Features.FeatureEntry", True))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, ("key", field.TYPE_STRING, False), ("value", "Feature", False))
    add(
        message(name="Example"),
        ("features", "Features", False),
        ("feature_lists", field.TYPE_BYTES, False),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("s.Example"))


FORMAT = Format("TFRecord files of tf.train.Examples", peek, scan, read_ranges)
