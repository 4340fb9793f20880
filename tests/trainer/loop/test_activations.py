import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.images.options import TransformConfig
from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.loop import activations
from components.trainer.loop.activations import Activations, choose_views
from components.trainer.training_input import TrainingInput
from tests.trainer.input.shard_folder import FEATURE_SPEC, SIZE, ShardFolder, name_files

BATCH = 8
IMAGES = TransformConfig(size=SIZE)
WHOLE = tf.distribute.InputContext()


class Backbone:
    """Mean and maximum of each channel; counts the images that it has seen."""

    def __init__(self) -> None:
        self.images = 0
        inputs = tf_keras.layers.Input([IMAGES.seen_size, IMAGES.seen_size, 3], dtype="uint8")
        pixels = tf_keras.layers.Rescaling(1 / 255)(tf_keras.layers.Lambda(self._count)(inputs))
        pools = (tf_keras.layers.GlobalAveragePooling2D, tf_keras.layers.GlobalMaxPooling2D)
        pooled = [pool()(pixels) for pool in pools]
        self.model = tf_keras.Model(inputs, tf_keras.layers.Concatenate()(pooled))

    def _count(self, images: tf.Tensor) -> tf.Tensor:
        def count(number: Any) -> Any:
            self.images += int(number)
            return np.int64(0)

        counted = tf.numpy_function(count, [tf.shape(images)[0]], tf.int64)
        with tf.control_dependencies([counted]):
            return tf.identity(images)


def training_input(folder: ShardFolder, **training: Any) -> TrainingInput:
    files = SimpleNamespace(**name_files(folder.path))
    config = TrainerConfig(
        transform=IMAGES,
        input=InputConfig(cache="none"),
        augmentation=AugmentationConfig(flip=True),
        training=TrainingConfig(**{"batch_size": BATCH, "seed": 5, **training}),
    )
    return TrainingInput.find(files, config, FEATURE_SPEC, replicas=1)


def in_order(data: TrainingInput, split: str) -> tuple[Any, Any]:
    """Return images as in evaluation, and their labels."""
    images, labels = zip(*data.read_in_order(getattr(data, split)), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def batches(cache: Activations, part: Any, *, step: int, count: int) -> list[Any]:
    taken = cache.read(step, part).take(count)
    return [(features.numpy(), labels.numpy()) for features, labels in taken]


def test_eval_features_are_in_order(shard_folder: ShardFolder) -> None:
    data, backbone = training_input(shard_folder), Backbone()
    images, labels = in_order(data, "evaluation")
    expected = backbone.model(images).numpy()
    read = Activations(backbone.model, data).read_evaluation()
    assert read.options().autotune.enabled is False, "findings/iterator_end.sh"
    features, ids = zip(*read, strict=True)
    np.testing.assert_array_equal(np.concatenate(ids), labels)
    np.testing.assert_allclose(np.concatenate(features), expected, rtol=1e-3)
    assert features[0].dtype == tf.float16


@pytest.mark.slow
def test_batches_contain_the_images_of_training(shard_folder: ShardFolder) -> None:
    data, backbone = training_input(shard_folder), Backbone()
    cache = Activations(backbone.model, data)
    images, _ = in_order(data, "train")
    expected = backbone.model(images).numpy()
    records = []
    whole = batches(cache, WHOLE, step=0, count=2 * data.steps)
    for features, labels in whole:
        distances = np.abs(features[:, np.newaxis] - expected).sum(-1)
        records.append(distances.argmin(1))
        np.testing.assert_allclose(distances.min(1), 0, atol=5e-3)
        np.testing.assert_array_equal(labels, [n % 3 for n in records[-1]])
    epochs = np.concatenate(records).reshape(2, -1)
    assert [sorted(epoch) for epoch in epochs] == [list(range(64))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()
    taken = [labels.numpy() for _, labels in data.read(0, WHOLE).take(2 * data.steps)]
    np.testing.assert_array_equal(np.concatenate(taken), epochs.ravel() % 3)
    seen = backbone.images
    for ours, theirs in zip(batches(cache, WHOLE, step=5, count=7), whole[5:], strict=False):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
    parts = [tf.distribute.InputContext(2, number, 2) for number in range(2)]
    of_workers = [batches(cache, part, step=1, count=3) for part in parts]
    for (left, other), (features, _) in zip(zip(*of_workers, strict=True), whole[1:], strict=False):
        np.testing.assert_array_equal(np.concatenate([left[0], other[0]]), features)
    assert backbone.images == seen, "each image is seen only once"


def test_an_epoch_takes_one_view_of_each_image(shard_folder: ShardFolder) -> None:
    data, backbone = training_input(shard_folder), Backbone()
    seen = Activations(backbone.model, data, views=3)
    table, labels = seen._table(data.train)
    views = table.reshape(64, 3, -1)
    images, ids = in_order(data, "train")
    np.testing.assert_array_equal(labels, ids)
    np.testing.assert_allclose(views[:, 0], backbone.model(images).numpy(), rtol=1e-3)
    np.testing.assert_array_equal(seen.first_views(data.train)[0], views[:, 0])
    # Shifted, so that other pixels count.
    assert all(np.any(views[:, 0] != views[:, view], axis=1).mean() > 0.9 for view in (1, 2))
    taken = set()
    for features, _ in seen.read(0, WHOLE).take(2 * data.steps):
        for row in features.numpy():
            [(_, view), *_] = np.argwhere((views == row).all(axis=2))
            taken.add(int(view))
    assert taken == {0, 1, 2}
    again = Activations(backbone.model, data, views=3)
    np.testing.assert_array_equal(again._table(data.train)[0], table)


def test_views_are_fewer_where_they_take_too_much(
    shard_folder: ShardFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, data = Backbone().model, training_input(shard_folder)
    per_view = (64 + 20) * 6 * 2
    for budget, views in ((4 * per_view, 4), (3 * per_view, 3), (2 * per_view - 1, 0)):
        monkeypatch.setattr(activations, "_BUDGET", budget)
        assert choose_views(model, data, {}) == views
    monkeypatch.setattr(activations, "_BUDGET", 4 * per_view)
    monkeypatch.setattr(activations, "available_memory", lambda: 64 * 6 * 2 * 4)
    with caplog.at_level(logging.WARNING):
        assert choose_views(model, data, {}) == 0
    assert "every epoch runs the whole network" in caplog.text
    # A second training has the views of the first, which take no more memory.
    tables = {f"train {model.name}": (np.empty(0, np.float16), np.empty(0, np.int64))}
    assert choose_views(model, data, tables) == 4
