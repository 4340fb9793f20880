"""Rungs of the input benchmark: from single files to pixels in memory, one change each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from benchmarks.ladder.data import Material
from components.contract.artifact_files import on_disk
from components.contract.example import ENCODED, LABEL_ID
from components.images.canonical import decode_jpeg
from components.images.options import CHANNELS
from components.trainer.config.input import InputConfig
from components.trainer.input.dataset import make_dataset
from components.trainer.input.sampler import TrainingOrder
from components.trainer.input.stream import INTERLEAVE, SHUFFLE_BUFFER

_BUFFER_BYTES = 8 * 2**20

# Threads that wait for files: a bucket needs more than a local disk.
_LOCAL_POOL, _REMOTE_POOL = 16, 64

# The spec that Transform's schema gives.
FEATURE_SPEC = {
    ENCODED: tf.io.FixedLenFeature([], tf.string),
    LABEL_ID: tf.io.FixedLenFeature([], tf.int64),
}


@dataclass(frozen=True)
class Rung:
    """One way to read the images."""

    name: str
    change: str
    """What differs from the rung before."""
    build: Callable[[Material, int], tf.data.Dataset]
    """From images and batch size to endless shuffled batches."""
    same_pixels: bool = True
    """Whether it gives the pixels of the canonical images."""


def _one(material: Material, file: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(decode_jpeg(file), [material.size, material.size, CHANNELS])


def _resized(material: Material, file: tf.Tensor) -> tf.Tensor:
    """Decode an original, crop its center and resize it."""
    image = tf.io.decode_image(file, channels=CHANNELS, expand_animations=False)
    image.set_shape([None, None, CHANNELS])
    side = tf.reduce_min(tf.shape(image)[:2])
    image = tf.image.resize_with_crop_or_pad(image, side, side)
    resized = tf.image.resize(image, [material.size, material.size], antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)


def _files(
    folder: str, to_image: Callable[..., tf.Tensor], calls: int | None, *, pool: bool = False
) -> Callable[[Material, int], tf.data.Dataset]:
    """Read a file for each image."""

    def build(material: Material, batch: int) -> tf.data.Dataset:
        threads = _LOCAL_POOL if on_disk(material.root) else _REMOTE_POOL
        files = tf.data.Dataset.from_tensor_slices((material.files(folder), list(material.labels)))
        images = (
            files.shuffle(material.images)
            .repeat()
            .map(
                lambda path, label: (to_image(material, tf.io.read_file(path)), label),
                num_parallel_calls=threads if pool else calls,
            )
        )
        batches = images.batch(batch, drop_remainder=True)
        return _as_written(batches, threads if pool else None)

    return build


def _as_written(batches: tf.data.Dataset, threads: int | None = None) -> tf.data.Dataset:
    """Keep tf.data from adding parallel calls and a prefetch, which are other rungs."""
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False
    if threads:
        options.threading.private_threadpool_size = threads
    return batches.with_options(options)


def _interleaved(
    material: Material, interleave: int, *, block: int = 1, storage: str = "jpeg"
) -> tf.data.Dataset:
    """Read `interleave` shards at a time, `block` records of each in turn."""
    paths = material.shards(storage).paths
    return tf.data.Dataset.from_tensor_slices(paths).interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=_BUFFER_BYTES),
        cycle_length=interleave,
        block_length=block,
        num_parallel_calls=tf.data.AUTOTUNE if interleave > 1 else None,
    )


def _all_shards(material: Material) -> tf.data.Dataset:
    return _interleaved(material, INTERLEAVE)


def _record_by_record(
    records: Callable[[Material], tf.data.Dataset], calls: int | None
) -> Callable[[Material, int], tf.data.Dataset]:
    """Parse and decode one record at a time."""

    def build(material: Material, batch: int) -> tf.data.Dataset:
        def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            features = tf.io.parse_single_example(record, FEATURE_SPEC)
            return _one(material, features[ENCODED]), features[LABEL_ID]

        shuffled = records(material).shuffle(SHUFFLE_BUFFER).repeat()
        images = shuffled.map(parse, num_parallel_calls=calls)
        return _as_written(images.batch(batch, drop_remainder=True))

    return build


def _ours(storage: str = "jpeg", **options: Any) -> Callable[[Material, int], tf.data.Dataset]:
    """Read with the function that training uses."""

    def build(material: Material, batch: int) -> tf.data.Dataset:
        return make_dataset(
            material.shards(storage),
            config=material.config(storage),
            feature_spec=FEATURE_SPEC,
            batch_size=batch,
            options=InputConfig(**options),
            order=TrainingOrder(seed=1),
        )

    return build


def _batch_by_batch() -> Callable[[Material, int], tf.data.Dataset]:
    """Parse and decode a batch of records at a time, with TensorFlow's operations."""
    from components.images.canonical import decode

    def build(material: Material, batch: int) -> tf.data.Dataset:
        def parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            features = tf.io.parse_example(serialized, FEATURE_SPEC)
            return decode(features[ENCODED], material.config()), features[LABEL_ID]

        records = _interleaved(material, INTERLEAVE).shuffle(SHUFFLE_BUFFER).repeat()
        batches = records.batch(batch, drop_remainder=True)
        return _as_written(batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE))

    return build


def _from_pixel_file(material: Material, batch: int) -> tf.data.Dataset:
    """Read pixels from a cache file that the benchmark removes."""
    return _ours(cache="file", cache_folder=f"{material.root}/pixels")(material, batch)


_AUTO = tf.data.AUTOTUNE

RUNGS = (
    Rung(
        "originals, resized every epoch",
        "the user's own files, decoded and resized each time",
        _files("originals", _resized, _AUTO),
        same_pixels=False,
    ),
    Rung("files one by one", "resized once, before", _files("files", _one, None)),
    Rung("files, parallel map", "num_parallel_calls", _files("files", _one, _AUTO)),
    Rung(
        "files, private thread pool",
        "private threads that wait for files",
        _files("files", _one, None, pool=True),
    ),
    Rung(
        "TFRecord, one shard",
        "bundled in one large shard",
        _record_by_record(lambda material: _interleaved(material, 1, storage="one"), None),
    ),
    Rung(
        "TFRecord, sequential",
        "16 shards, one after the other",
        _record_by_record(lambda material: _interleaved(material, 1), None),
    ),
    Rung(
        "interleave, 4 shards",
        "cycle_length 4, AUTOTUNE",
        _record_by_record(lambda material: _interleaved(material, 4), None),
    ),
    Rung(
        "interleave, blocks of 16",
        "block_length 16: that many records of a shard in turn",
        _record_by_record(lambda material: _interleaved(material, 4, block=16), None),
    ),
    Rung(
        "+ interleave",
        "16 shards at a time, single records",
        _record_by_record(_all_shards, None),
    ),
    Rung("+ parallel decode", "num_parallel_calls", _record_by_record(_all_shards, _AUTO)),
    Rung("+ parse by batch", "batch first, then parse and decode", _batch_by_batch()),
    Rung(
        "+ prefetch: reader streamed",
        "batches made ahead; libjpeg-turbo writes into them",
        _ours(cache="none", reader="streamed"),
    ),
    Rung(
        "reader indexed",
        "shards mapped into memory; no records parsed",
        _ours(cache="none"),
    ),
    Rung("storage raw", "pixels in the shards", _ours("raw", cache="none")),
    Rung("cache file", "pixels in a file of their own", _from_pixel_file),
    Rung("cache decoded", "pixels in memory", _ours(cache="decoded")),
)

# These read local files only.
_LOCAL = ("reader indexed", "cache file")

REMOTE_RUNGS = tuple(rung for rung in RUNGS if rung.name not in _LOCAL)
