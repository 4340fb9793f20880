"""What training reads: the splits, the size of a batch, and their datasets."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.data.cache import resolve_cache
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.sampler import TrainingOrder
from pipeline_def.data.shards import Shards
from pipeline_def.data.split_statistics import patch_covariance, pixel_moments, read_labels


@dataclass(frozen=True)
class TrainingInput:
    """The input of one training."""

    train: Shards
    evaluation: Shards
    feature_spec: Mapping[str, Any]
    """What the transform graph says of the stored features."""
    choices: TrainerConfig
    """With `input.cache` resolved."""
    batch_size: int
    """Images per step, on all accelerators together, as many on each."""

    @classmethod
    def find(
        cls, fn_args: Any, choices: TrainerConfig, feature_spec: Mapping[str, Any], *, replicas: int
    ) -> TrainingInput:
        """Find the shards that Trainer was given, for a training on `replicas` accelerators."""
        train, evaluation = (
            Shards.of_pattern(pattern) for [pattern] in (fn_args.train_files, fn_args.eval_files)
        )
        options = resolve_cache(choices.input, [train, evaluation], choices.transform)
        batch = max(1, min(choices.training.batch_size, train.total) // replicas) * replicas
        choices = dataclasses.replace(choices, input=options)
        return cls(train, evaluation, feature_spec, choices, batch)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self.train.total // self.batch_size

    @property
    def flip_on_host(self) -> bool:
        """Whether images are mirrored as they are decoded, and not in the training step.

        While images are decoded, a flip is nearly free: 128 take 3 ms; in a step on CPU 25 ms. An
        accelerator does it in no time, and leaves the host to decode.
        """
        return self.choices.augmentation.flip and not tf.config.list_physical_devices("GPU")

    @property
    def augmentation(self) -> AugmentationConfig:
        """What is left to do for the training step."""
        augmentation = self.choices.augmentation
        return dataclasses.replace(
            augmentation,
            flip=augmentation.flip and not self.flip_on_host,
            # Windows are cut out of originals as these are decoded.
            min_crop_area=1.0 if self.of_originals else augmentation.min_crop_area,
        )

    @property
    def of_originals(self) -> bool:
        """Whether the train split is stored as originals."""
        return self.choices.transform.storage == "originals"

    def read(self, step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
        """Return the endless batches of one input pipeline after `step` steps."""
        size = part.get_per_replica_batch_size(self.batch_size)
        return self._dataset(self.train, size, self.choices.input, self.order(step, part))

    def order(self, step: int, part: tf.distribute.InputContext) -> TrainingOrder:
        """Return how one input pipeline takes the training images after `step` steps."""
        training = self.choices.training
        order = TrainingOrder(
            seed=training.seed,
            flip=self.flip_on_host,
            balanced=training.balance == "sampling",
            min_crop_area=self.choices.augmentation.min_crop_area,
        )
        return order.for_worker(step, part)

    def read_evaluation(self) -> tf.data.Dataset:
        """Return every example of the eval split once."""
        return self._dataset(self.evaluation, self.batch_size, self.choices.input)

    def class_counts(self, classes: int = 0) -> list[int]:
        """Count the training images of each label id, from 0 to at least `classes` - 1.

        An id that the vocabulary has, but no training image, counts 0.
        """
        labels = read_labels(self.train, self.feature_spec)
        return [int(count) for count in np.bincount(labels, minlength=classes)]

    def class_weights(self, classes: int = 0) -> list[float] | None:
        """Return the weight of an image of each class in the loss, if `training.balance` asks.

        All classes that have images weigh the same together, and the mean of all images is 1. A
        class without images weighs 0: no image asks for its weight.
        """
        if self.choices.training.balance != "weights":
            return None
        counts = self.class_counts(classes)
        share = sum(counts) / sum(count > 0 for count in counts)
        return [share / count if count else 0.0 for count in counts]

    def pixel_moments(self) -> tuple[list[float], list[float]]:
        """Return mean and variance of the training pixels, [3] each, 0 to 255."""
        return pixel_moments(self._unshuffled())

    def patch_covariance(self) -> list[list[float]]:
        """Return the covariance, [12, 12], of patches of two by two training pixels."""
        return patch_covariance(self._unshuffled())

    def first_images(self, count: int) -> list[bytes]:
        """Return the first training images as the model sees them, PNG files; any would do."""
        images = next(iter(self._unshuffled()))[0][:count]
        return [tf.io.encode_png(image).numpy() for image in images]

    def draw_images(self, count: int) -> Iterator[Any]:
        """Yield training images at random, uint8 [size, size, 3]: the first may be of one class."""
        batches = self.read(0, tf.distribute.InputContext()).as_numpy_iterator()
        return itertools.islice((image for batch in batches for image in batch[0]), count)

    def _unshuffled(self) -> tf.data.Dataset:
        return self._dataset(self.train, self.batch_size, InputConfig(cache="none"))

    def _dataset(
        self, shards: Shards, size: int, options: InputConfig, order: TrainingOrder | None = None
    ) -> tf.data.Dataset:
        return make_dataset(
            shards,
            config=self.choices.transform,
            feature_spec=self.feature_spec,
            batch_size=size,
            options=options,
            order=order,
        )
