"""The Beam step of Transform: one output shard per input shard, with the records in its order.

Originals are upright JPEGs from which readers can take any crop, at any scale.
"""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf
import tensorflow_transform as tft

from components.contract.example import (
    ENCODED,
    FILENAME,
    LABEL,
    LABEL_ID,
    LABEL_VOCABULARY,
    SHA256,
    TRAIN,
)
from components.host.machine import available_cpus
from components.host.progress import add_progress
from components.images.canonical import decode_upright
from components.images.jpeg_frame import read_frame, state_orientation
from components.images.options import MAX_SIDE, TransformConfig
from components.images.upright import read_orientations
from components.records.record_index import write_indexed_shard
from components.records.shard_work import ConcurrentDoFn

Pixels = npt.NDArray[np.uint8]

# Large enough to amortize a graph call, small enough to hold the images of several batches.
_BATCH = 64

# Features of an original that are stored beside its label id.
_KEPT = (ENCODED, FILENAME, LABEL, SHA256)

# TFX's own ExampleGens compress their shards, and write no index.
_GZIP_SUFFIX = ".gz"

# Four times the pixels of the largest model input, 2048 by 2048: bounds the time of each epoch, and
# the memory that a progressive JPEG takes.
_MOST_PIXELS = 2**24

Batch = Mapping[str, np.ndarray[Any, Any]]
"""The features of some records, an array of scalars each."""


def transformed_name(shard: str) -> str:
    """Name the uncompressed output after its input shard."""
    return shard.removesuffix(_GZIP_SUFFIX)


class TransformShard(ConcurrentDoFn):
    """Applies the transform graph to each shard."""

    def __init__(
        self,
        graph_uri: str,
        examples_uri: str,
        output_uri: str,
        total: int | None,
        config: TransformConfig,
    ) -> None:
        """Write the shards of `output_uri`; `total` is the number of records, if it is known."""
        super().__init__(available_cpus())
        self._config = config
        self._graph_uri = graph_uri
        self._examples_uri = examples_uri
        self._output_uri = output_uri
        self._total = total

    def setup(self) -> None:
        """Load the graph."""
        output = tft.TFTransformOutput(self._graph_uri)
        raw_spec = output.raw_feature_spec()
        layer = output.transform_features_layer()

        # Traced once for all shards, without AutoGraph, which would find nothing to convert.
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def transform(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
            features: dict[str, tf.Tensor] = layer(tf.io.parse_example(serialized, raw_spec))
            return features

        self._transform = transform.get_concrete_function()
        self._kept_spec = {name: raw_spec[name] for name in _KEPT if name in raw_spec}
        labels = output.vocabulary_by_name(LABEL_VOCABULARY)
        self._ids = {label: number for number, label in enumerate(labels)}

    def work(self, shard: tuple[str, str]) -> None:
        """Write the shard of this split and name."""
        split, name = shard
        path = os.path.join(self._examples_uri, f"Split-{split}", name)
        compression = "GZIP" if name.endswith(_GZIP_SUFFIX) else None
        batches = tf.data.TFRecordDataset(path, compression).batch(_BATCH).prefetch(1)
        is_kept = self._config.storage == "originals" and split == TRAIN
        # Called here, not mapped over the dataset: tf.data would instantiate the graph for every
        # shard, which takes half a second.
        transformed = map(self._keep_batch if is_kept else self._transform_batch, batches)
        write_indexed_shard(
            self._output_uri, split, transformed_name(name), self._list_examples(transformed)
        )

    def _transform_batch(self, batch: tf.Tensor) -> Batch:
        return {name: values.numpy() for name, values in self._transform(batch).items()}

    def _keep_batch(self, batch: tf.Tensor) -> Batch:
        """Return the same features as the graph, with the original images."""
        parsed = tf.io.parse_example(batch, self._kept_spec)
        features = {name: values.numpy().reshape(-1) for name, values in parsed.items()}
        labels = features.pop(LABEL)
        # The graph maps unknown labels to -1, too.
        features[LABEL_ID] = np.array([self._ids.get(label, -1) for label in labels], np.int64)
        images = [keep_original(image, self._config) for image in features[ENCODED]]
        return {**features, ENCODED: np.array(images, object)}

    def _list_examples(self, batches: Iterator[Batch]) -> Iterator[dict[str, Any]]:
        """Yield the features of each row of batches of scalars, and report progress."""
        for batch in batches:
            columns = {name: values.reshape(-1).tolist() for name, values in batch.items()}
            for row in zip(*columns.values(), strict=True):
                yield dict(zip(columns, row, strict=True))
                if self._total:
                    add_progress(self._output_uri, 1, total=self._total, unit="images")


def keep_original(data: bytes, config: TransformConfig) -> bytes:
    """Return an upright JPEG at full resolution: `data` itself if it is one.

    Other formats, CMYK, rotated files, JPEGs with damage that TensorFlow ignores, and images of
    more than 16.8 million pixels, which are shrunk to that, are encoded once, at `config.quality`
    and `config.chroma`.

    Raises:
        tf.errors.InvalidArgumentError: TensorFlow cannot decode it.
    """
    if _is_kept(data):
        return data
    # As in the served graph.
    image, _ = decode_upright(tf.constant(data), read_orientations(tf.constant([data]))[0])
    encoded: bytes = simplejpeg.encode_jpeg(
        _bounded(image.numpy()), config.quality, "RGB", "444" if config.chroma == "full" else "420"
    )
    return encoded


def _bounded(pixels: Pixels) -> Pixels:
    """Shrink [height, width, 3] to the limits, keeping its shape."""
    height, width = pixels.shape[:2]
    factor = min(math.sqrt(_MOST_PIXELS / (height * width)), MAX_SIDE / max(height, width))
    if factor >= 1:
        return pixels
    size = (max(1, int(width * factor)), max(1, int(height * factor)))
    resized: Pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return resized


def _is_kept(data: bytes) -> bool:
    """Return whether a file is an undamaged, upright JPEG in gray or color within the limits."""
    frame = read_frame(data)
    if frame is None or frame.height * frame.width > _MOST_PIXELS or state_orientation(data) != 1:
        return False
    try:
        _, _, colors, _ = simplejpeg.decode_jpeg_header(data)
        # Decode all entropy-coded bytes, and a pixel per block, so that damage shows here and not
        # during training. 0.83 ms for 110 KB, where Transform's graph takes 2.4 ms.
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except Exception:  # ValueError for damage, KeyError for rare subsampling, MemoryError.
        return False
    return colors in ("YCbCr", "RGB", "Gray")
