"""How other tools turn labelled image files into their own shards, for the ingest benchmark.

Each tool is used the way its documentation advises for a machine with two cores.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from PIL import Image

SHARD_BYTES = 128 * 1024 * 1024
CORES = 2
JPEG_QUALITY = 95
# Beam's modes of two threads or two processes were slower in every measurement.
BEAM_ARGS = ("--runner=FnApiRunner", "--direct_running_mode=in_memory")

Files = Sequence[tuple[str, str]]
_T = TypeVar("_T")


class Peer(Protocol):
    """Writes image files and their labels as one tool's shards."""

    def __call__(self, files: Files, target: str, *, shrink: int | None) -> None:
        """Write the shards.

        Args:
            files: Path and label of every image.
            target: An empty folder on the local disk.
            shrink: None to keep the bytes of the files, else the shorter side in pixels to
                shrink images to and encode them anew; smaller JPEGs are kept as they are.
        """


def webdataset_writer(files: Files, target: str, *, shrink: int | None) -> None:
    """Write tar files with WebDataset's ShardWriter, a part of the files in each process.

    Args:
        files: Path and label of every image.
        target: An empty folder on the local disk.
        shrink: None to keep the bytes of the files, else the shorter side in pixels.
    """
    import_module("webdataset")  # before the processes fork, so that they have it
    classes = {label: index for index, label in enumerate(_names(files))}
    samples = [(f"{i:08d}", path, classes[label]) for i, (path, label) in enumerate(files)]
    patterns = [f"{target}/part-{core}-%06d.tar" for core in range(CORES)]
    with _processes() as pool:
        list(pool.map(partial(_write_tars, shrink=shrink), _parts(samples), patterns))


def _write_tars(samples: Sequence[tuple[str, str, int]], pattern: str, shrink: int | None) -> None:
    """Write samples of key, path and class; whole seconds as mtime save a header a file."""
    writer = import_module("webdataset").ShardWriter
    with writer(pattern, maxsize=SHARD_BYTES, encoder=False, verbose=0, mtime=0) as sink:
        for key, path, number in samples:
            sink.write({"__key__": key, "jpg": _stored(path, shrink), "cls": b"%d" % number})


def tfds_writer(files: Files, target: str, *, shrink: int | None) -> None:
    """Write TFRecords with a builder of TensorFlow Datasets, in one process as it works.

    Args:
        files: Path and label of every image.
        target: An empty folder on the local disk.
        shrink: None to keep the bytes of the files, else the shorter side in pixels.
    """
    tfds = import_module("tensorflow_datasets")
    tfds.disable_progress_bar()
    builder = _tfds_builder(tfds, files, shrink)(data_dir=target)
    builder.download_and_prepare(file_format="tfrecord")


def _tfds_builder(tfds: Any, files: Files, shrink: int | None) -> Any:
    """The builder's class, one for these files; not registered, so that it can be made again."""
    base: Any = tfds.core.GeneratorBasedBuilder

    with import_module("tensorflow_datasets.core.registered").skip_registration():

        class PeerImages(base):
            """Labelled images of a folder."""

            VERSION = tfds.core.Version("1.0.0")

            def _info(self) -> Any:
                features = {
                    "image": tfds.features.Image(encoding_format="jpeg"),
                    "label": tfds.features.ClassLabel(names=_names(files)),
                }
                return tfds.core.DatasetInfo(
                    builder=self,
                    features=tfds.features.FeaturesDict(features),
                    supervised_keys=("image", "label"),
                )

            def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
                return {"train": self._generate_examples()}

            def _generate_examples(self) -> Iterator[tuple[str, dict[str, Any]]]:
                for (path, label), image in zip(files, _tfds_images(files, shrink), strict=True):
                    yield path, {"image": image, "label": label}

    return PeerImages


def _tfds_images(files: Files, shrink: int | None) -> Iterator[str | bytes]:
    """What the Image feature stores undecoded: the path of a file, or the bytes of a JPEG."""
    paths = [path for path, _ in files]
    if shrink is None:
        yield from paths
        return
    # Pillow frees Python's lock while it works; forking with TensorFlow loaded would be unsafe.
    with ThreadPoolExecutor(CORES) as pool:
        yield from pool.map(partial(_stored, shrink=shrink), paths)


def streaming_writer(files: Files, target: str, *, shrink: int | None) -> None:
    """Write MDS shards with MosaicML Streaming, a part of the files in each process.

    Args:
        files: Path and label of every image.
        target: An empty folder on the local disk.
        shrink: None to keep the bytes of the files, else the shorter side in pixels.
    """
    import_module("streaming")  # before the processes fork, so that they have it
    folders = [f"{target}/{core:05d}" for core in range(CORES)]
    with _processes() as pool:
        list(pool.map(partial(_write_mds, shrink=shrink), _parts(files), folders))
    import_module("streaming.base.util").merge_index(target, keep_local=True)


def _write_mds(files: Files, folder: str, shrink: int | None) -> None:
    """Write the MDS shards of one process into a folder of its own."""
    writer = import_module("streaming").MDSWriter
    columns = {"image": "bytes", "label": "str"}
    with writer(columns=columns, out=folder, size_limit=SHARD_BYTES, compression=None) as sink:
        for path, label in files:
            sink.write({"image": _stored(path, shrink), "label": label})


def tfx_writer(files: Files, target: str, *, shrink: int | None) -> None:
    """Write gzipped TFRecords with Beam and the WriteSplit that every TFX ExampleGen ends in.

    Args:
        files: Path and label of every image.
        target: An empty folder on the local disk.
        shrink: None to keep the bytes of the files, else the shorter side in pixels.
    """
    import apache_beam as beam
    from apache_beam.io import fileio
    from apache_beam.options.pipeline_options import PipelineOptions
    from tfx.components.example_gen import write_split
    from tfx.proto import example_gen_pb2

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
    """The Example of a file that Beam has found."""
    data = match.read()
    path = match.metadata.path
    return _example(data if shrink is None else _shrunk(data, shrink), labels[path])


def tf_data_writer(files: Files, target: str, *, shrink: int | None) -> None:
    """Write TFRecords from a tf.data pipeline that reads and shrinks in parallel.

    Args:
        files: Path and label of every image.
        target: An empty folder on the local disk.
        shrink: None to keep the bytes of the files, else the shorter side in pixels.
    """
    import tensorflow as tf

    paths, labels = zip(*files, strict=True)
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
    """Read a JPEG and shrink it unless it is small, as TensorFlow operations."""
    import tensorflow as tf

    data = tf.io.read_file(path)
    if side is None:
        return data, label
    size = tf.image.extract_jpeg_shape(data)[:2]
    small = tf.reduce_min(size) <= side
    return tf.cond(small, lambda: data, lambda: _tf_shrunk(data, size, side)), label


def _tf_shrunk(data: Any, size: Any, side: int) -> Any:
    """A JPEG of a height and width shrunk to a shorter side in pixels."""
    import tensorflow as tf

    size = tf.cast(size, tf.float32)
    scaled = tf.cast(tf.round(size * (side / tf.reduce_min(size))), tf.int32)
    image = tf.image.resize(tf.io.decode_jpeg(data), scaled)
    image = tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)
    return tf.io.encode_jpeg(image, quality=JPEG_QUALITY)


def _write_records(records: Iterator[bytes], target: str) -> None:
    """Write records to TFRecord files, the next one when a shard is full."""
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
    """An image and its label as tf.train.Example."""
    import tensorflow as tf

    def feature(value: bytes) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    features = {"image": feature(data), "label": feature(label.encode())}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _stored(path: str, shrink: int | None) -> bytes:
    """The bytes to store of a file."""
    with open(path, "rb") as file:
        data = file.read()
    return data if shrink is None else _shrunk(data, shrink)


def _shrunk(data: bytes, side: int) -> bytes:
    """An image shrunk with Pillow to a shorter side in pixels, as JPEG; a small JPEG as it is."""
    with Image.open(io.BytesIO(data)) as image:
        if image.format == "JPEG" and min(image.size) <= side:
            return data
        plain = image if image.mode in ("L", "RGB") else image.convert("RGB")
        scale = min(1.0, side / min(plain.size))
        plain.thumbnail((round(plain.width * scale), round(plain.height * scale)))
        small = io.BytesIO()
        plain.save(small, "JPEG", quality=JPEG_QUALITY)
    return small.getvalue()


def _names(files: Files) -> list[str]:
    """The labels in the order of their numbers."""
    return sorted({label for _, label in files})


def _parts(items: Sequence[_T]) -> list[Sequence[_T]]:
    """The items dealt out evenly, a part for each process."""
    return [items[core::CORES] for core in range(CORES)]


def _processes() -> ProcessPoolExecutor:
    """A process for each core, forked as Python does on Linux unless told otherwise."""
    return ProcessPoolExecutor(CORES, mp_context=get_context("fork"))


PEERS: dict[str, tuple[Peer, tuple[str, ...]]] = {
    "webdataset": (webdataset_writer, ("webdataset",)),
    "tensorflow_datasets": (
        tfds_writer,
        ("tensorflow", "importlib_resources", "tensorflow_datasets"),
    ),
    "streaming": (streaming_writer, ("streaming",)),
    "tf.data": (tf_data_writer, ("tensorflow",)),
    "tfx": (tfx_writer, ("tfx.components.example_gen.write_split",)),
}
"""Each peer and the modules it needs."""


def find_obstacle(name: str) -> str:
    """Import what a peer needs; return why it cannot be measured, "" if it can."""
    for module in PEERS[name][1]:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            return f"the package {error.name} is not installed in this environment"
        except Exception as error:  # packages built for other versions raise anything here
            return f"{module} cannot be imported: {type(error).__name__}: {error}"
    return ""
