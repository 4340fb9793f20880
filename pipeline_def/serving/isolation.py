"""One bad file must not cost the others of its batch their answers: TensorFlow fails them all.

A graph cannot catch an error, but a tf.data pipeline within it can leave out what fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from pipeline_def.serving.faults import all_within_limits, describe_damage, find_faults

# Images decoded at the same time when each is decoded by itself, as `tf.map_fn` does.
_PARALLEL = 10


class Decoded(NamedTuple):
    """The images of a batch of files, as far as there are any."""

    images: tf.Tensor
    """uint8 [images, size, size, 3]; one black image if there is none."""
    places: tf.Tensor
    """int64 [images or 0], the file of each."""
    errors: tf.Tensor
    """string [batch]: why there is no image; empty where there is one."""


def decode_good(files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int) -> Decoded:
    """Decode those of `files` that can be decoded.

    Args:
        files: string [batch].
        decode: string [n] → uint8 [n, size, size, 3]; fails if any of them cannot be decoded.
        size: pixels.
    """
    images = _decode_together(files, decode, size)

    def of_all() -> Decoded:
        numbers = tf.range(tf.size(files, out_type=tf.int64))
        return Decoded(images, numbers, tf.fill(tf.shape(files), ""))

    decoded = tf.cond(tf.size(images) > 0, of_all, lambda: _decode_each(files, decode, size))
    return Decoded(*decoded)


def _decode_together(
    files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int
) -> tf.Tensor:
    """Decode all of `files` at once, the fast way for good ones; no image if that fails."""

    def checked(files: tf.Tensor) -> tf.Tensor:
        check = tf.debugging.Assert(all_within_limits(files), ["a file is too large"])
        with tf.control_dependencies([check]):
            return decode(tf.identity(files))

    attempt = tf.data.Dataset.from_tensors(files).map(checked).ignore_errors()
    nothing = tf.data.Dataset.from_tensors(tf.zeros([0, size, size, 3], tf.uint8))
    return _run(attempt.concatenate(nothing).take(1))


def _decode_each(files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int) -> Decoded:
    """Decode each of `files` by itself."""
    black = tf.zeros([size, size, 3], tf.uint8)

    def one(place: tf.Tensor, file: tf.Tensor) -> tuple[tf.Tensor, ...]:
        [fault] = tf.unstack(find_faults(file[tf.newaxis]), 1)
        image = tf.cond(tf.equal(fault, ""), lambda: decode(file[tf.newaxis])[0], lambda: black)
        return place, fault, image

    count = tf.size(files, out_type=tf.int64)
    found = tf.data.Dataset.from_tensor_slices(files).enumerate().map(one, _PARALLEL)
    # So that there is a batch, and an image for the model, in any case.
    last = tf.data.Dataset.from_tensors((count, "", black))
    places, faults, images = _run(found.ignore_errors().concatenate(last).batch(count + 1))
    # What is missing among the places has failed.
    errors = tf.concat([describe_damage(files), [""]], axis=0)
    errors = tf.tensor_scatter_nd_update(errors, places[:, tf.newaxis], faults)
    good = tf.equal(faults, "")
    images, places = tf.boolean_mask(images, good), tf.boolean_mask(places, good)
    return Decoded(images[: tf.maximum(tf.size(places) - 1, 1)], places[:-1], errors[:-1])


def _run(dataset: tf.data.Dataset) -> tf.Tensor:
    """Return the one element of `dataset`, which runs as it is: to rewrite it would take longer."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    options.experimental_warm_start = False
    return dataset.with_options(options).get_single_element()
