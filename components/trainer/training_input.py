"""The input of a training: its splits, batch size and datasets."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import tensorflow as tf

from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.training import TrainerConfig
from components.trainer.input.cache import resolve_cache
from components.trainer.input.dataset import Kept, make_dataset
from components.trainer.input.sampler import TrainingOrder
from components.trainer.input.shards import RecordTable, Shards


@dataclass(frozen=True)
class TrainingInput:
    """The input of one training."""

    train: Shards
    evaluation: Shards
    feature_spec: Mapping[str, Any]
    """Feature spec of the transformed examples."""
    config: TrainerConfig
    """With `input.cache` resolved."""
    batch_size: int
    """Images per step over all replicas, a multiple of their number."""
    kept: Kept = field(default_factory=dict)
    """What the datasets of all trainings and their phases share in memory."""

    @classmethod
    def find(
        cls, fn_args: Any, config: TrainerConfig, feature_spec: Mapping[str, Any], *, replicas: int
    ) -> Self:
        """Find the shards that Trainer was given, for a training on `replicas` accelerators."""
        train, evaluation = (
            Shards.of_pattern(pattern) for [pattern] in (fn_args.train_files, fn_args.eval_files)
        )
        options = resolve_cache(config.input, [train, evaluation], config.transform)
        config = dataclasses.replace(config, input=options)
        return cls(train, evaluation, feature_spec, config, 0).of(train, evaluation, replicas)

    def of(self, train: Shards, evaluation: Shards, replicas: int) -> Self:
        """Return the same input of other shards."""
        batch = max(1, min(self.config.training.batch_size, train.total) // replicas) * replicas
        return dataclasses.replace(self, train=train, evaluation=evaluation, batch_size=batch)

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        # With fewer images than replicas, a batch has some of them twice.
        return max(1, self.train.total // self.batch_size)

    @property
    def augmentation(self) -> AugmentationConfig:
        """The augmentation of the training step."""
        return self.config.augmentation

    def read(self, step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
        """Return the endless batches of one input pipeline from `step` on."""
        size = part.get_per_replica_batch_size(self.batch_size)
        return self._dataset(self.train, size, self.config.input, self.order(step, part))

    def order(self, step: int, part: tf.distribute.InputContext) -> TrainingOrder:
        """Return the order in which one input pipeline reads training images from `step` on."""
        return TrainingOrder(self.config.training.seed).for_worker(step, part)

    def read_evaluation(self) -> tf.data.Dataset:
        """Return every example of the eval split once."""
        return self._dataset(self.evaluation, self.batch_size, self.config.input)

    def read_in_order(self, shards: Shards) -> tf.data.Dataset:
        """Return every example of a split once, in the order of the shards.

        Only a cache in a file is used, which training reads, too: one in memory would be lost.
        """
        given = self.config.input
        options = given if given.cache == "file" else dataclasses.replace(given, cache="none")
        return self._dataset(shards, self.batch_size, options)

    def draw_images(self, count: int) -> Iterator[Any]:
        """Yield random training images, uint8 [size, size, 3]: the first may be of one class."""
        batches = self.read(0, tf.distribute.InputContext()).as_numpy_iterator()
        return itertools.islice((image for batch in batches for image in batch[0]), count)

    def class_weights(self, classes: int) -> list[float] | None:
        """Return the loss factor of each class if `training.balance` is weights.

        All classes with images have the same total weight, and the mean over all images is 1. A
        class of the vocabulary without training images weighs 0.
        """
        if self.config.training.balance == "none":
            return None
        labels = RecordTable.read(self.train).label
        counts = np.bincount(labels, minlength=classes).tolist()
        mean = sum(counts) / sum(count > 0 for count in counts)
        return [mean / count if count else 0.0 for count in counts]

    def _dataset(
        self, shards: Shards, size: int, options: InputConfig, order: TrainingOrder | None = None
    ) -> tf.data.Dataset:
        return make_dataset(
            shards,
            config=self.config.transform,
            feature_spec=self.feature_spec,
            batch_size=size,
            options=options,
            order=order,
            kept=self.kept,
        )
