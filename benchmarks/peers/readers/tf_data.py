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
        images = records.map(partial(_image, job, cut=False), **parallel).cache().shuffle(SHUFFLE)
        if job.storage == "crop":
            images = images.map(partial(_cut, job), **parallel)
    else:
        images = records.shuffle(SHUFFLE).map(partial(_image, job, cut=True), **parallel)
    batches = images.batch(job.batch, **parallel).repeat().prefetch(tf.data.AUTOTUNE)
    return partial(islice, iter(batches), steps(job, len(Samples(job))))


def _image(job: Job, record: Any, *, cut: bool) -> tuple[Any, Any]:
    """Return a record's image and label; `cut` is whether to do the random cut as well."""
    import tensorflow as tf

    features = {ENCODED: tf.io.FixedLenFeature([], tf.string)}
    features[LABEL] = tf.io.FixedLenFeature([], tf.int64)
    fields = tf.io.parse_single_example(record, features)
    data, label = fields[ENCODED], fields[LABEL]
    shape = [job.size, job.size, 3]
    if job.is_raw:
        return tf.reshape(tf.io.decode_raw(data, tf.uint8), shape), label
    if job.storage == "jpeg" or (job.storage == "crop" and not cut):
        return tf.io.decode_jpeg(data, channels=3), label
    height, width, _ = tf.unstack(tf.io.extract_jpeg_shape(data))
    if job.storage == "crop":
        top = tf.random.uniform([], maxval=height - job.size + 1, dtype=tf.int32)
        left = tf.random.uniform([], maxval=width - job.size + 1, dtype=tf.int32)
        image = tf.io.decode_and_crop_jpeg(data, [top, left, job.size, job.size], channels=3)
        return tf.image.random_flip_left_right(tf.ensure_shape(image, shape)), label
    side = tf.minimum(height, width)
    window = [(height - side) // 2, (width - side) // 2, side, side]
    if job.storage == "window":
        window = _draw_window(height, width)
    image = tf.image.resize(tf.io.decode_and_crop_jpeg(data, window, channels=3), shape[:2])
    image = tf.cast(tf.round(image), tf.uint8)
    return tf.image.random_flip_left_right(image) if job.storage == "window" else image, label


def _draw_window(height: Any, width: Any) -> Any:
    """Draw the window of a random-resized crop, as TensorFlow's own training scripts do."""
    import tensorflow as tf

    start, size, _ = tf.image.sample_distorted_bounding_box(
        [height, width, 3],
        tf.zeros([1, 0, 4]),
        area_range=(MIN_AREA, 1.0),
        aspect_ratio_range=ASPECTS,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([start[:2], size[:2]], axis=0)


def _cut(job: Job, image: Any, label: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    crop = tf.image.random_crop(image, [job.size, job.size, 3])
    return tf.image.random_flip_left_right(crop), label
