import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.contract.errors import ConfigurationError, ModelError
from components.contract.model_files import NETWORK_FILE
from components.images.options import TransformConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.networks.networks import build_model
from components.trainer.networks.warm_start import (
    describe_network,
    find_start,
    shorten,
    start_from,
    start_key,
)

CONFIG = TrainerConfig(
    transform=TransformConfig(size=16),
    model=ModelConfig("cnn", width=4),
    training=TrainingConfig(epochs=20, learning_rate=0.2, warmup_epochs=2.0),
)


def build(classes: int, width: int = 4) -> tf_keras.Model:
    config = dataclasses.replace(CONFIG.model, width=width)
    return build_model(config, size=16, classes=classes, mean=[9.0] * 3, variance=[4.0] * 3)


def push(folder: Path, labels: Sequence[str], number: int = 1) -> tuple[str, tf_keras.Model]:
    """Write what a warm start reads of a pushed model."""
    version, model = folder / str(number), build(len(labels))
    for variable in model.variables:
        variable.assign(np.random.default_rng(number).integers(0, 9, variable.shape))
    served = tf.Module()
    served.weights = model.variables
    tf.saved_model.save(served, str(version))
    (version / "assets" / "labels").write_text("".join(f"{label}\n" for label in labels))
    (version / "assets.extra").mkdir()
    (version / NETWORK_FILE).write_text(describe_network(CONFIG))
    return str(version), model


def weights_of(model: tf_keras.Model) -> tuple[list[Any], Any, Any]:
    """Return the weights before the last layer, its kernel, and its bias."""
    kernel, bias = model.layers[-1].trainable_weights
    others = [of.numpy() for of in model.variables if of is not kernel and of is not bias]
    return others, kernel.numpy(), bias.numpy()


@pytest.mark.slow
def test_labels_keep_their_outputs_by_name(tmp_path: Path) -> None:
    version, pushed = push(tmp_path, ["b", "a", "gone"])
    model = build(4)
    _, fresh_kernel, fresh_bias = weights_of(model)
    start = start_from(model, version, ["a", "new", "b", "other"], CONFIG)
    assert (start.kept, start.new, start.gone) == (["a", "b"], ["new", "other"], ["gone"])
    before, old_kernel, old_bias = weights_of(pushed)
    after, kernel, bias = weights_of(model)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(kernel[:, [0, 2]], old_kernel[:, [1, 0]])
    np.testing.assert_array_equal(bias[[0, 2]], old_bias[[1, 0]])
    np.testing.assert_array_equal(kernel[:, [1, 3]], fresh_kernel[:, [1, 3]])
    np.testing.assert_array_equal(bias[[1, 3]], fresh_bias[[1, 3]])


@pytest.mark.slow
def test_a_start_that_does_not_fit_changes_no_weight(tmp_path: Path) -> None:
    version, _ = push(tmp_path, ["a", "b"])
    larger = dataclasses.replace(CONFIG, transform=TransformConfig(size=32))
    wrong: list[tuple[tf_keras.Model, list[str], TrainerConfig, str]] = [
        (build(2), ["x", "y"], CONFIG, "knows none of the labels of the images: it knows a, b"),
        (build(2, width=8), ["a", "b"], CONFIG, r"a weight of shape .* instead of"),
        (build(2), ["a", "b"], larger, "the image size 16 instead of 32"),
    ]
    for model, labels, config, message in wrong:
        before = model.get_weights()
        with pytest.raises(ModelError, match=message):
            start_from(model, version, labels, config)
        for one, other in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_the_model_to_start_from(tmp_path: Path) -> None:
    pushed = str(tmp_path)
    assert find_start("true", pushed) == start_key("true", pushed) == find_start("", pushed) == ""
    first, _ = push(tmp_path, ["a", "b"])
    second, _ = push(tmp_path, ["a", "b"], number=2)
    assert (
        find_start("true", pushed)
        == find_start("2", pushed)
        == find_start(second, pushed)
        == second
    )
    assert find_start("1", pushed) == first
    assert start_key("1", pushed) != start_key("2", pushed) != ""
    with pytest.raises(ModelError, match=r"is 3, but .* missing: .* versions in .* \(2, 1\)"):
        find_start("3", pushed)
    (tmp_path / "2" / "variables" / "variables.data-00000-of-00001").unlink()
    with pytest.raises(ModelError, match="cannot be used"):
        find_start("2", pushed)
    assert find_start("true", pushed) == first


def test_going_on_is_shorter_and_slower() -> None:
    training = shorten(CONFIG).training
    assert (training.epochs, training.learning_rate, training.warmup_epochs) == (5, 0.1, 0.5)


def test_a_training_has_one_start() -> None:
    given = (False, "false", True, "True", 7, "s3://b/7")
    starts = [ModelConfig(warm_start=one).start for one in given]
    assert starts == ["", "", "true", "true", "7", "s3://b/7"]
    with pytest.raises(ConfigurationError, match="are both set"):
        ModelConfig(weights="backbone.weights.h5", warm_start=True)
