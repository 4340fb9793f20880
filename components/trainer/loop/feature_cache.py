"""Features of all images, computed once by a frozen backbone, to train the head on.

Images are taken as in evaluation, in the order of the shards. Training then only copies features,
in the order in which it would read the images.
"""

import dataclasses
import functools
import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.host.machine import available_memory, fits_in_memory, gib
from components.host.progress import add_progress
from components.trainer.input.dataset import BATCHES_AHEAD, ReadPlan
from components.trainer.input.host_calls import empty_aligned, share_captured
from components.trainer.input.sampler import Int64Array, TrainingOrder
from components.trainer.input.shards import Shards
from components.trainer.loop.strategy import mean_of_workers
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Per epoch. Ten images of each of four classes are two batches, and sixty updates leave the head 15
# points below scikit-learn's logistic regression; these, within one.
_MIN_STEPS = 64

Features = npt.NDArray[np.float32]
Tables = dict[str, tuple[Features, Int64Array]]
"""Split → features and label ids of all its images."""


class FeatureCache:
    """Features of both splits, each computed when it is first read.

    A phase that was completed before the training was interrupted reads none.
    """

    augmentation = None
    """Features are not augmented."""

    def __init__(
        self, backbone: tf_keras.Model, data: TrainingInput, tables: Tables | None = None
    ) -> None:
        """Cache the features of `data`.

        Args:
            backbone: from uint8 images [batch, size, size, 3] to features [batch, d]; must not
                change from now on.
            data: of the training. In a distributed one, every worker computes all features.
            tables: features that other trainings on rows of the same shards have computed.
        """
        self._backbone, self._data = backbone, data
        self._tables = {} if tables is None else tables

    @property
    def fits(self) -> bool:
        """Whether all features fit into half of the available memory, on every worker."""
        splits = self._data.train, self._data.evaluation
        records = sum(shards.total for shards in splits if shards.split not in self._tables)
        needed, available = records * self._width * 4, available_memory()
        fits = float(fits_in_memory(needed, available))
        if mean_of_workers(fits, self._backbone.distribute_strategy) == 1:
            return True
        _LOGGER.warning(
            "Features of all images take %s, but only %s of memory are available: "
            "transfer.cache_features is ignored, and every epoch runs the network on all images.",
            *(gib(needed), gib(available)),
        )
        return False

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return max(self._data.steps, _MIN_STEPS)

    def read(self, step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
        """Return the endless batches of one input pipeline from `step` on.

        Returns:
            Batches of (float32 [batch, d], int64 [batch], record numbers int64 [batch]).
        """
        size = part.get_per_replica_batch_size(self._data.batch_size)
        order = self._data.order(step, part)
        return self._batches(self._data.train, size, order)

    def read_evaluation(self) -> tf.data.Dataset:
        """Return the features of every example of the eval split once."""
        return self._batches(self._data.evaluation, self._data.batch_size)

    @property
    def _width(self) -> int:
        return int(self._backbone.output_shape[-1])

    def _batches(
        self, shards: Shards, size: int, order: TrainingOrder | None = None
    ) -> tf.data.Dataset:
        if shards.split not in self._tables:
            self._tables[shards.split] = self._compute(dataclasses.replace(shards, rows=None))
        table, config = self._tables[shards.split], self._data.config
        if shards.rows is not None:
            rows = np.array(shards.rows, np.int64)
            chosen = empty_aligned((len(rows), self._width * 4)).view(np.float32)
            chosen[:] = table[0][rows]
            table = chosen, table[1][rows]
        plan = ReadPlan(shards, config.transform, {}, size, config.input, order)
        # Shares the memory that tf.constant() would copy.
        features = tf.experimental.dlpack.from_dlpack(table[0].__dlpack__())
        labels = tf.constant(table[1])

        def gather(_: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(features, records), tf.gather(labels, records)

        batches = share_captured(plan.map(plan.sample_records(table[1]), gather))
        return batches.prefetch(BATCHES_AHEAD)

    def _compute(self, shards: Shards) -> tuple[Features, Int64Array]:
        """Run the backbone on all images of a split, in the order of the shards."""
        # TensorFlow shares aligned memory only.
        features = empty_aligned((shards.total, self._width * 4)).view(np.float32)
        labels = np.empty(shards.total, np.int64)
        strategy, done = self._backbone.distribute_strategy, 0
        batches = strategy.distribute_datasets_from_function(
            lambda _: self._data.read_in_order(shards)
        )
        for images, label_ids in batches:
            parts = strategy.experimental_local_results(self._forward(images))
            ids_of_parts = strategy.experimental_local_results(label_ids)
            # Replicas get batches in turn, the last ones an empty batch at the end.
            for part, ids in zip(parts, ids_of_parts, strict=True):
                end = done + len(ids)
                features[done:end], labels[done:end] = part.numpy(), ids.numpy()
                add_progress(
                    f"features of {shards.uri} {shards.split}",
                    end - done,
                    total=shards.total,
                    unit="images to features",
                )
                done = end
        return features, labels

    @functools.cached_property
    def _forward(self) -> Any:
        """The backbone on every replica, as a function of a batch for each."""
        strategy = self._backbone.distribute_strategy
        images = tf.TensorSpec([None, *self._backbone.input_shape[1:]], tf.uint8)

        # Tracing takes seconds: once for batches of any size.
        @tf.function(input_signature=[images], autograph=False)
        def forward(images: tf.Tensor) -> tf.Tensor:
            return tf.cast(self._backbone(images, training=False), tf.float32)

        # A strategy would wrap a function with a signature that it is given directly.
        def on_replica(images: tf.Tensor) -> tf.Tensor:
            return forward(images)

        return tf.function(lambda batch: strategy.run(on_replica, (batch,)), autograph=False)
