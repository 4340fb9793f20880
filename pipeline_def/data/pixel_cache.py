"""The pixels of a whole split, decoded once, in memory or in a local file."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf

from components.contract.progress import add_progress
from components.images.canonical import CHANNELS
from pipeline_def.data.batch_memory import Pixels, empty_aligned
from pipeline_def.data.file_cache import default_folder, open_pixels
from pipeline_def.data.read_plan import ReadPlan
from pipeline_def.data.sampler import Int64Array
from pipeline_def.data.shards import Shards


def decode_all(dataset: tf.data.Dataset, plan: ReadPlan) -> tuple[Pixels, Int64Array]:
    """Keep the pixels and labels of every image, in the order of the shards.

    Args:
        dataset: uint8 [batch, stored, stored, 3] and int64 [batch], of the whole split, in order;
            not read if `cache: file` finds its file.
        plan: says which cache.

    Returns:
        uint8 [records, stored, stored, 3], aligned for TensorFlow, and int64 [records].
    """
    options, side = plan.options, plan.config.stored_size
    shape = (plan.shards.total, side, side, CHANNELS)
    fill = functools.partial(_fill, dataset.prefetch(2), plan.shards)
    if options.cache == "decoded":
        pixels, labels = empty_aligned(shape), np.empty(plan.shards.total, np.int64)
        fill(pixels, labels)
        return pixels, labels
    folder = Path(options.cache_folder) if options.cache_folder else default_folder()
    entry = folder / f"{plan.shards.split}-{_fingerprint(plan)}"
    return open_pixels(entry, shape, limit=int(options.cache_file_gib * 2**30), fill=fill)


def _fill(dataset: tf.data.Dataset, shards: Shards, pixels: Pixels, labels: Int64Array) -> None:
    done = 0
    for images, ids in dataset.as_numpy_iterator():
        end = done + len(ids)
        pixels[done:end], labels[done:end] = images, ids
        task = f"decode {shards.uri} {shards.split}"
        add_progress(task, end - done, total=shards.total, unit="images decoded")
        done = end


def _fingerprint(plan: ReadPlan) -> str:
    """Return 16 hexadecimal digits that change with the shards and the form of the images."""
    facts = [repr(plan.config), *map(repr, plan.shards.counts.items())]
    for path in plan.shards.paths:
        status = tf.io.gfile.stat(path)
        facts += [path, str(status.length), str(status.mtime_nsec)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
