"""What a frozen network computes from all images, once: the input of the layers that learn.

Training then only copies numbers, in the order in which it would read the images.
"""

import dataclasses
import functools
import logging
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.contract.example import TRAIN
from components.host.machine import available_memory, fits_in_memory, gib
from components.host.progress import add_progress
from components.trainer.config.input import AugmentationConfig
from components.trainer.input.augment import augment
from components.trainer.input.dataset import ReadPlan
from components.trainer.input.host_calls import empty_aligned, read_ahead, share_captured
from components.trainer.input.sampler import Int64Array, TrainingOrder
from components.trainer.input.shards import Shards
from components.trainer.loop.strategy import mean_of_workers
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Of all views of all images. The model must not depend on the memory of the machine.
_BUDGET = 2 * 2**30
VIEWS = 4
"""Views of each training image: an epoch takes one of them. The first is the image itself."""
# Images seen at once: the views must not depend on the batches of the training.
_BATCH = 32
# Of a value, in float16.
_BYTES = 2

Table = tuple[npt.NDArray[np.float16], Int64Array]
"""Activations [images * views, values], image by image, and label ids [images]."""
Tables = dict[str, Table]
"""Split and number of blocks → what the blocks before compute."""


class Activations:
    """Outputs of the frozen part of a network for both splits, each computed when first read."""

    augmentation = None
    """Views are augmented before, not in the training step."""

    def __init__(
        self,
        frozen: tf_keras.Model,
        data: TrainingInput,
        *,
        views: int = 1,
        most: int = sys.maxsize,
        tables: Tables | None = None,
    ) -> None:
        """Keep the outputs for `data`.

        Args:
            frozen: from uint8 images [batch, size, size, 3] to float32; must not change from now
                on.
            data: of the training. In a distributed one, every worker computes all outputs.
            views: number of views of each training image, augmented but for the first.
            most: number of images of a split to run it on, the first ones.
            tables: outputs that other trainings on rows of the same shards have computed.
        """
        self._frozen, self._data, self._views, self._most = frozen, data, views, most
        self._seen = dataclasses.replace(data, batch_size=_BATCH)
        # Tracing takes seconds: once for both splits, and for batches of any size.
        self._forward = functools.cache(self._make_forward)
        self._tables = {} if tables is None else tables

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self._data.steps

    def read(self, step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
        """Return the endless batches of one input pipeline from `step` on.

        Returns:
            Batches of (float16 [batch, ...], int64 [batch]).
        """
        size = part.get_per_replica_batch_size(self._data.batch_size)
        return self._batches(self._data.train, size, self._data.order(step, part))

    def read_evaluation(self) -> tf.data.Dataset:
        """Return the outputs for every example of the eval split once."""
        return self.read_in_order(self._data.evaluation)

    def read_in_order(self, shards: Shards) -> tf.data.Dataset:
        """Return the outputs for the images of a split themselves, in order."""
        return self._batches(shards, self._data.batch_size)

    def first_views(self, shards: Shards) -> Table:
        """Return the outputs for the images themselves, and the label ids, in order."""
        firsts, ids = self._find_rows(shards)
        return self._table(shards)[0][firsts], ids

    def _find_rows(self, shards: Shards) -> tuple[Int64Array, Int64Array]:
        """Return the rows of the table with the first views, and their label ids."""
        _, labels = self._table(shards)
        rows = np.arange(len(labels)) if shards.rows is None else np.array(shards.rows, np.int64)
        return rows * self._views_of(shards), labels[rows]

    def _views_of(self, shards: Shards) -> int:
        return self._views if shards.split == TRAIN else 1

    def _table(self, shards: Shards) -> Table:
        place = f"{shards.uri} {shards.split} {self._frozen.name}"
        key = f"{place} {self._data.config.augmentation if self._views_of(shards) > 1 else ''}"
        if key not in self._tables:
            # Other views would take as much memory again.
            for old in [other for other in self._tables if other.startswith(place)]:
                del self._tables[old]
            self._tables[key] = self._compute(dataclasses.replace(shards, rows=None))
        return self._tables[key]

    def _batches(
        self, shards: Shards, size: int, order: TrainingOrder | None = None
    ) -> tf.data.Dataset:
        config, views = self._data.config, self._views_of(shards)
        places_of_first, label_ids = self._find_rows(shards)
        plan = ReadPlan(shards, config.transform, {}, size, config.input, order)
        # Shares the memory that tf.constant() would copy.
        outputs = tf.experimental.dlpack.from_dlpack(self._table(shards)[0].__dlpack__())
        firsts, ids = tf.constant(places_of_first), tf.constant(label_ids)
        shape = [-1, *self._frozen.output_shape[1:]]

        def gather(batch: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            places = tf.gather(firsts, records)
            if order and views > 1:
                seed = tf.stack([tf.constant(order.seed, tf.int64), batch])
                places += tf.random.stateless_uniform(
                    tf.shape(records), seed, 0, views, dtype=tf.int64
                )
            return tf.reshape(tf.gather(outputs, places), shape), tf.gather(ids, records)

        batches = plan.map(plan.sample_records(), gather)
        return read_ahead(share_captured(batches))

    def _compute(self, shards: Shards) -> Table:
        """Run the frozen part on all images of a split, in the order of the shards."""
        views, width = self._views_of(shards), count_values(self._frozen)
        # TensorFlow shares aligned memory only.
        total = min(shards.total, self._most)
        memory = empty_aligned((total, views, width * _BYTES))
        outputs, labels = memory.view(np.float16), np.empty(total, np.int64)
        strategy, forward = self._frozen.distribute_strategy, self._forward(views)
        done = step = 0
        batches = strategy.distribute_datasets_from_function(
            lambda _: self._seen.read_in_order(shards)
        )
        for images, label_ids in batches:
            number = tf.constant(step, tf.int64)
            parts = strategy.experimental_local_results(forward(images, number))
            ids_of_parts = strategy.experimental_local_results(label_ids)
            # Replicas get batches in turn, the last ones an empty batch at the end.
            for part, ids in zip(parts, ids_of_parts, strict=True):
                end = min(done + len(ids), total)
                outputs[done:end], labels[done:end] = (
                    array.numpy()[: end - done] for array in (part, ids)
                )
                add_progress(
                    f"activations of {shards.uri} {shards.split} {self._frozen.name}",
                    end - done,
                    total=total,
                    unit="images seen by the frozen layers",
                )
                done, step = end, step + 1
            if done == total:
                break
        return outputs.reshape(total * views, width), labels

    def _make_forward(self, views: int) -> Any:
        """Return the frozen part on every replica, a function of a batch for each and its number.

        It returns float16 [batch, views, values].
        """
        strategy = self._frozen.distribute_strategy
        images = tf.TensorSpec([None, *self._frozen.input_shape[1:]], tf.uint8)

        @tf.function(input_signature=[images, tf.TensorSpec([], tf.int64)], autograph=False)
        def forward(images: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            seen = [self._see(images, number, view) for view in range(views)]
            return tf.stack(seen, axis=1)

        # A strategy would wrap a function with a signature that it is given directly.
        def on_replica(images: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return forward(images, number + tf.cast(context.replica_id_in_sync_group, tf.int64))

        return tf.function(
            lambda batch, number: strategy.run(on_replica, (batch, number)),
            autograph=False,
            reduce_retracing=True,
        )

    def _see(self, images: tf.Tensor, number: tf.Tensor, view: int) -> tf.Tensor:
        """Return the outputs for a view of a batch, float16 [batch, values]."""
        config = self._data.config
        if view:
            seed = [tf.constant(config.training.seed, tf.int64), VIEWS * number + view]
            images = augment(images, seed=tf.stack(seed), config=config.augmentation)
        outputs = tf.cast(self._frozen(images, training=False), tf.float16)
        return tf.reshape(outputs, [-1, count_values(self._frozen)])


def count_values(model: tf_keras.Model) -> int:
    """Return the number of values that a model computes from an image."""
    return int(np.prod(model.output_shape[1:]))


def choose_views(frozen: tf_keras.Model, data: TrainingInput, tables: Tables) -> int:
    """Return how many views of each training image can be kept; 0 if training reads images.

    `tables` are those that are kept already. The views depend on the images and the network only.
    """
    images, per_view = data.train.total, count_values(frozen) * _BYTES
    changed = data.config.augmentation != AugmentationConfig(shift=0.0)
    most = VIEWS if changed else 1
    views = min(most, _BUDGET // (per_view * (images + data.evaluation.total)))
    if views < min(2, most):
        return 0
    if any(frozen.name in key for key in tables):
        return views
    needed, available = images * views * per_view, available_memory()
    fits = float(fits_in_memory(needed, available))
    if mean_of_workers(fits, frozen.distribute_strategy) == 1:
        return views
    _LOGGER.warning(
        "Activations of all images take %s, but only %s of memory are available, so every epoch "
        "runs the whole network.",
        *(gib(needed), gib(available)),
    )
    return 0
