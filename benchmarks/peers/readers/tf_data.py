"""tf.data as its tutorials have it: interleaved TFRecord shards, a map for each image."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from benchmarks.peers.readers.job import (
    ASPECTS,
    ENCODED,
    LABEL,
    MIN_AREA,
    SHUFFLE,
    Epoch,
    Job,
    Samples,
    steps,
)


def tf_data_epochs(job: Job, *, cache: bool = False) -> Epoch:
    """Read our own shards; `cache` keeps decoded images in memory."""
    import tensorflow as tf

    parallel = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": False}
    shards = tf.data.Dataset.from_tensor_slices([str(shard) for shard in job.shards()])
    records = shards.shuffle(len(job.shards())).interleave(
        tf.data.TFRecordDataset, cycle_length=len(job.shards()), **parallel
    )
    if cache:
        images = records.map(partial(_decode, job), **parallel).cache().shuffle(SHUFFLE)
    else:
        images = records.shuffle(SHUFFLE).map(partial(_decode, job), **parallel)
    batches = images.batch(job.batch, **parallel).repeat().prefetch(tf.data.AUTOTUNE)
    return partial(islice, iter(batches), steps(job, len(Samples(job))))


def _decode(job: Job, record: Any) -> tuple[Any, Any]:
    """Return a record's image and label; cut windows as TensorFlow's own training scripts do."""
    import tensorflow as tf

    features = {ENCODED: tf.io.FixedLenFeature([], tf.string)}
    features[LABEL] = tf.io.FixedLenFeature([], tf.int64)
    fields = tf.io.parse_single_example(record, features)
    data, label = fields[ENCODED], fields[LABEL]
    if job.storage == "jpeg":
        return tf.io.decode_jpeg(data, channels=3), label
    start, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(data),
        tf.zeros([1, 0, 4]),
        area_range=(MIN_AREA, 1.0),
        aspect_ratio_range=ASPECTS,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([start[:2], size[:2]], axis=0)
    image = tf.io.decode_and_crop_jpeg(data, window, channels=3)
    image = tf.image.resize(image, [job.size, job.size])
    return tf.image.random_flip_left_right(tf.cast(tf.round(image), tf.uint8)), label
