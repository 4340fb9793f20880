from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from components import example
from pipeline_def.config import TrainingConfig
from pipeline_def.dataset import make_dataset, pixel_moments
from pipeline_def.image import decode
from tests import nodes
from tests.conftest import SIZE

BATCH = 8


def dataset(transformed: nodes.Transformed, split: str, **options: Any) -> tf.data.Dataset:
    spec = tft.TFTransformOutput(transformed.graph.uri).transformed_feature_spec()
    pattern = f"{transformed.examples.uri}/Split-{split}/*"
    return make_dataset(pattern, feature_spec=spec, size=SIZE, batch_size=BATCH, **options)


def stored_images(transformed: nodes.Transformed, split: str) -> list[bytes]:
    records = nodes.read_examples(transformed.examples, split)
    encoded = [r.features.feature[example.ENCODED].bytes_list.value[0] for r in records]
    return [image.tobytes() for image in decode(tf.constant(encoded), size=SIZE).numpy()]


def test_evaluation_reads_every_example_once_in_order(transformed: nodes.Transformed) -> None:
    batches = list(dataset(transformed, "eval").as_numpy_iterator())
    images = [image.tobytes() for batch, _ in batches for image in batch]
    assert images == stored_images(transformed, "eval")


def test_each_epoch_of_training_reads_every_example_once_in_its_own_order(
    transformed: nodes.Transformed,
) -> None:
    expected = stored_images(transformed, "train")
    config = TrainingConfig(shift=0)
    stream = dataset(transformed, "train", training=config).unbatch().as_numpy_iterator()
    epochs = [
        [image.tobytes() for image, _ in itertools.islice(stream, len(expected))] for _ in range(2)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(expected)
    assert epochs[0] != epochs[1]
    assert epochs[0] != expected


def test_shapes_are_static_and_pixels_stay_uint8(transformed: nodes.Transformed) -> None:
    images, labels = dataset(transformed, "train", training=TrainingConfig()).element_spec
    assert images == tf.TensorSpec([BATCH, SIZE, SIZE, 3], tf.uint8)
    assert labels == tf.TensorSpec([BATCH], tf.int64)


def first_batches(transformed: nodes.Transformed, config: TrainingConfig) -> list[Any]:
    stream = dataset(transformed, "train", training=config).take(20).as_numpy_iterator()
    return [array for batch in stream for array in batch]


def test_same_seed_same_batches(transformed: nodes.Transformed) -> None:
    config = TrainingConfig(seed=3, flip=True)
    first, again = (first_batches(transformed, config) for _ in range(2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("other", [TrainingConfig(seed=4), TrainingConfig(seed=3, shift=0)])
def test_other_seed_or_augmentation_other_batches(
    transformed: nodes.Transformed, other: TrainingConfig
) -> None:
    first = first_batches(transformed, TrainingConfig(seed=3))
    assert any(
        (a != b).any() for a, b in zip(first, first_batches(transformed, other), strict=True)
    )


@pytest.mark.parametrize("most", [1024, 20])
def test_moments_are_those_of_the_first_training_images(
    transformed: nodes.Transformed, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("pipeline_def.dataset._MOMENTS_OF", most)
    images = stored_images(transformed, "train")[:most]
    pixels = np.frombuffer(b"".join(images), np.uint8).reshape(-1, 3)
    mean, variance = pixel_moments(dataset(transformed, "train"))
    np.testing.assert_allclose(mean, pixels.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(variance, pixels.astype(float).var(axis=0), rtol=1e-9)
