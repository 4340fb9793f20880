"""One bad file must not cost the others of its batch their answers: TensorFlow fails them all.

A graph cannot catch an error, but a tf.data pipeline within it can leave out what fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from pipeline_def.serving.faults import are_sound, describe_damage, find_faults

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

    # A function that is left out of the graph around it costs nothing where it is not called.
    @tf.function(autograph=False, experimental_attributes={"_noinline": True})
    def of_each() -> Decoded:
        return _decode_each(files, decode, size)

    return Decoded(*tf.cond(tf.size(images) > 0, of_all, of_each))


def _decode_together(
    files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int
) -> tf.Tensor:
    """Decode all of `files` at once, the fast way for good ones; no image if that fails."""
    all_sound = tf.reduce_all(are_sound(files))
    attempted = tf.cond(all_sound, lambda: files, lambda: files[:0])
    attempt = tf.data.Dataset.from_tensors(attempted).map(decode).ignore_errors()
    nothing = tf.data.Dataset.from_tensors(tf.zeros([0, size, size, 3], tf.uint8))
    return _run(attempt.concatenate(nothing).take(1))


def _decode_each(files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int) -> Decoded:
    """Decode each of `files` by itself."""
    faults = find_faults(files)
    numbers = tf.where(tf.equal(faults, ""))[:, 0]
    candidates = (numbers, tf.gather(files, numbers))

    def one(number: tf.Tensor, file: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return number, decode(file[tf.newaxis])[0]

    found = tf.data.Dataset.from_tensor_slices(candidates).map(one, _PARALLEL).ignore_errors()
    # So that there is a batch, and an image for the model, in any case.
    black = tf.zeros([size, size, 3], tf.uint8)
    last = tf.data.Dataset.from_tensors((tf.constant(-1, tf.int64), black))
    batch = found.concatenate(last).batch(tf.size(files, tf.int64) + 1)
    places, images = _run(batch)
    places = places[:-1]
    errors = tf.where(tf.equal(faults, ""), describe_damage(files), faults)
    no_error = tf.fill(tf.shape(places), "")
    errors = tf.tensor_scatter_nd_update(errors, places[:, tf.newaxis], no_error)
    return Decoded(images[: tf.maximum(tf.size(places), 1)], places, errors)


def _run(dataset: tf.data.Dataset) -> tf.Tensor:
    """Return the one element of `dataset`, which runs as it is: to rewrite it would take longer."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    options.experimental_warm_start = False
    return dataset.with_options(options).get_single_element()
