"""How TensorFlow and TFX write labeled image files into shards."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

SHARD_BYTES = 128 * 1024 * 1024
CORES = 2
JPEG_QUALITY = 95
# Beam's modes with two threads or two processes were slower in every measurement.
BEAM_ARGS = (
    "--runner=FnApiRunner",
    "--direct_running_mode=in_memory",
    "--sdk_container_image=none",
)


def list_files(folder: str) -> list[tuple[str, str]]:
    """Return path and label of every file of `label/file`."""
    files = filter(Path.is_file, sorted(Path(folder).glob("*/*")))
    return [(str(path), path.parent.name) for path in files]


def _tfx(source: str, target: str, shrink: int | None) -> None:
    """Write gzipped TFRecords with Beam and the WriteSplit that every TFX ExampleGen ends in."""
    import apache_beam as beam
    from apache_beam.io import fileio
    from apache_beam.options.pipeline_options import PipelineOptions
    from tfx.components.example_gen import write_split
    from tfx.proto import example_gen_pb2

    files = list_files(source)
    kind = write_split.to_file_format_str(example_gen_pb2.FORMAT_TFRECORDS_GZIP)
    with beam.Pipeline(options=PipelineOptions(list(BEAM_ARGS))) as pipeline:
        _ = (
            pipeline
            | beam.Create([path for path, _ in files])
            | fileio.MatchAll()
            | fileio.ReadMatches()
            | beam.Map(_read_match, labels=dict(files), shrink=shrink)
            | write_split.WriteSplit(target, kind)
        )


def _read_match(match: Any, labels: dict[str, str], shrink: int | None) -> Any:
    data = match.read()
    return _example(
        data if shrink is None else _shrink_with_pillow(data, shrink), labels[match.metadata.path]
    )


def _tf_data(source: str, target: str, shrink: int | None) -> None:
    """Write TFRecords from a tf.data pipeline that reads and shrinks in parallel."""
    import tensorflow as tf

    paths, labels = zip(*list_files(source), strict=True)
    images = (
        tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
        .map(partial(_tf_load, side=shrink), tf.data.AUTOTUNE, deterministic=False)
        .prefetch(tf.data.AUTOTUNE)
    )
    records = (
        _example(data, label.decode()).SerializeToString()
        for data, label in images.as_numpy_iterator()
    )
    _write_records(records, target)


def _tf_load(path: Any, label: Any, side: int | None) -> tuple[Any, Any]:
    """Read a JPEG and shrink it unless it is small, with TensorFlow's operations."""
    import tensorflow as tf

    data = tf.io.read_file(path)
    if side is None:
        return data, label
    size = tf.image.extract_jpeg_shape(data)[:2]

    def shrink() -> Any:
        factor = side / tf.reduce_min(tf.cast(size, tf.float32))
        scaled = tf.cast(tf.round(tf.cast(size, tf.float32) * factor), tf.int32)
        image = tf.image.resize(tf.io.decode_jpeg(data), scaled)
        image = tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)
        return tf.io.encode_jpeg(image, quality=JPEG_QUALITY)

    return tf.cond(tf.reduce_min(size) <= side, lambda: data, shrink), label


def _write_records(records: Iterator[bytes], target: str) -> None:
    """Write records to TFRecord files, starting another one when a shard is full."""
    import tensorflow as tf

    shard, size = 0, 0
    writer = tf.io.TFRecordWriter(f"{target}/images-{shard:05d}.tfrecord")
    for record in records:
        if size >= SHARD_BYTES:
            writer.close()
            shard, size = shard + 1, 0
            writer = tf.io.TFRecordWriter(f"{target}/images-{shard:05d}.tfrecord")
        writer.write(record)
        size += len(record)
    writer.close()


def _example(data: bytes, label: str) -> Any:
    import tensorflow as tf

    def feature(value: bytes) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    features = {"image": feature(data), "label": feature(label.encode())}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _shrink_with_pillow(data: bytes, side: int) -> bytes:
    """Shrink an image with Pillow and encode it as JPEG; keep a small JPEG."""
    with Image.open(io.BytesIO(data)) as image:
        if image.format == "JPEG" and min(image.size) <= side:
            return data
        plain = image if image.mode in ("L", "RGB") else image.convert("RGB")
        scale = min(1.0, side / min(plain.size))
        plain.thumbnail((round(plain.width * scale), round(plain.height * scale)))
        small = io.BytesIO()
        plain.save(small, "JPEG", quality=JPEG_QUALITY)
    return small.getvalue()


PEERS: dict[str, Callable[..., None]] = {"TFX's WriteSplit": _tfx, "tf.data": _tf_data}
"""Each writes the images of a folder into a new one; `shrink` is a shorter side or None."""
