"""Features that tell known images, from what a training has left."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tf_keras

from components.trainer.loop.activations import Activations
from components.trainer.loop.known_features import describe_images, score_evaluation
from components.trainer.loop.train import FINE_TUNE, HEAD, Shared
from tests.trainer.input.shard_folder import ShardFolder
from tests.trainer.loop.test_activations import Backbone, in_order, training_input


def make_training(folder: ShardFolder, *, dtype: str = "float32") -> Any:
    """Return what is left of a training whose backbone is frozen, and its inner layer."""
    data, backbone = training_input(folder), Backbone().model
    layers = [tf_keras.layers.Dense(4, dtype=dtype), tf_keras.layers.Dense(3, dtype=dtype)]
    rest = tf_keras.Sequential([tf_keras.layers.Input(backbone.output_shape[1:]), *layers])
    seen = Activations(backbone, data)
    model = tf_keras.Model(backbone.input, rest(backbone.output))
    return SimpleNamespace(
        model=model,
        data=data,
        see_fixed=lambda: seen,
        shared=Shared(),
        find_unfrozen=lambda: (rest, seen),
        expected={HEAD: backbone, FINE_TUNE: lambda images: layers[0](backbone(images))},
    )


@pytest.mark.parametrize(
    ("phase", "dtype", "tolerance"),
    [
        (HEAD, "float32", 1e-3),
        (FINE_TUNE, "float32", 2e-3),
        (FINE_TUNE, "mixed_bfloat16", 2e-2),
        ("train", "mixed_bfloat16", 2e-2),
    ],
)
def test_features_are_those_of_the_images(
    shard_folder: ShardFolder, phase: str, dtype: str, tolerance: float
) -> None:
    training = make_training(shard_folder, dtype=dtype)
    described = describe_images(training, training.data.train, phase=phase)
    assert described
    images, labels = in_order(training.data, "train")
    see = training.expected[HEAD if phase == HEAD else FINE_TUNE]
    np.testing.assert_array_equal(described[1], labels)
    np.testing.assert_allclose(described[0], see(images).numpy().astype(np.float32), atol=tolerance)
    scores = score_evaluation(training, phase=phase)
    assert scores is not None
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()


def test_a_network_without_a_last_dense_layer_has_no_features(shard_folder: ShardFolder) -> None:
    training = make_training(shard_folder)
    training.model = Backbone().model
    assert describe_images(training, training.data.train, phase="train") is None
    assert score_evaluation(training, phase="train") is None


def test_trainings_of_other_layers_share_no_features(shard_folder: ShardFolder) -> None:
    """Trials of a search may fine-tune more blocks, or fewer, with outputs of the same shape."""
    first, other = make_training(shard_folder), make_training(shard_folder)
    other.shared = first.shared
    for training in (first, other):
        described = describe_images(training, training.data.train, phase=FINE_TUNE)
        assert described
        images, _ = in_order(training.data, "train")
        expected = training.expected[FINE_TUNE](images).numpy()
        np.testing.assert_allclose(described[0], expected, atol=2e-3)
