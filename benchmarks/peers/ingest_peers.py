"""How TensorFlow and TFX write labeled image files into shards."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


def _tfx(source: str, target: str) -> None:
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
            | beam.Map(_read_match, labels=dict(files))
            | write_split.WriteSplit(target, kind)
        )


def _read_match(match: Any, labels: dict[str, str]) -> Any:
    return _example(match.read(), labels[match.metadata.path])


def _tf_data(source: str, target: str) -> None:
    """Write TFRecords from a tf.data pipeline that reads in parallel."""
    import tensorflow as tf

    paths, labels = zip(*list_files(source), strict=True)
    images = (
        tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
        .map(
            lambda path, label: (tf.io.read_file(path), label),
            tf.data.AUTOTUNE,
            deterministic=False,
        )
        .prefetch(tf.data.AUTOTUNE)
    )
    records = (
        _example(data, label.decode()).SerializeToString()
        for data, label in images.as_numpy_iterator()
    )
    _write_records(records, target)


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


PEERS: dict[str, Callable[[str, str], None]] = {"TFX's WriteSplit": _tfx, "tf.data": _tf_data}
"""Each writes the images of a folder into a new one."""
