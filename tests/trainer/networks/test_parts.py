"""Freezing by block: frozen layers neither learn nor move, others do."""

from typing import Any

import numpy as np
import pytest
import tf_keras

from components.contract.errors import ConfigurationError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.networks import build_model
from components.trainer.networks.parts import Parts, divide, freeze, unfreeze_everything
from tests.trainer.networks.networks import IMAGES, build, train, values

CNN, V2 = ModelConfig(name="cnn", width=2), "efficientnet_v2_b0"


@pytest.fixture(scope="module")
def built() -> tuple[tf_keras.Model, list[Any]]:
    model = build(CNN)
    return model, model.get_weights()


@pytest.fixture
def model(built: tuple[tf_keras.Model, list[Any]]) -> tf_keras.Model:
    """A network with its initial weights, nothing frozen."""
    model, weights = built
    unfreeze_everything(model)
    model.set_weights(weights)
    return model


def moved(before: list[Any], after: list[Any]) -> list[bool]:
    return [not np.array_equal(old, new) for old, new in zip(before, after, strict=True)]


def has_kernel(layer: Any) -> bool:
    return any(len(weight.shape) == 4 for weight in layer.weights)


@pytest.mark.parametrize(
    ("name", "first_kernels"),
    [
        ("cnn", ["block_1_conv", "block_2_conv", "block_3_conv", "block_4_conv"]),
        pytest.param(
            "resnet9",
            ["whitening", *(f"block_{n}_entry_conv" for n in (1, 2, 3))],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_blocks_hold_every_layer_once_in_order(name: str, first_kernels: list[str]) -> None:
    parts = Parts.of(build(ModelConfig(name=name, width=2)))
    blocks = parts.blocks
    assert [next(filter(has_kernel, block)).name for block in blocks] == first_kernels
    weights = [weight.name for block in blocks for layer in block for weight in layer.weights]
    assert sorted(weights) == sorted(weight.name for weight in parts.backbone.weights)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", pytest.param(V2, marks=pytest.mark.weekly)])
def test_a_frozen_backbone_stays_bit_for_bit(name: str) -> None:
    model = build(ModelConfig(name=name, width=2 if name == "cnn" else 0))
    train(model)
    parts = Parts.of(model)
    freeze(model, unfreeze="none")
    weights, features = values(parts.backbone.weights), parts.backbone(IMAGES)
    head = values(parts.head.trainable_weights)
    train(model)
    assert not any(moved(weights, values(parts.backbone.weights)))
    assert all(moved(head, values(parts.head.trainable_weights)))
    np.testing.assert_array_equal(parts.backbone(IMAGES), features)
    np.testing.assert_array_equal(parts.backbone(IMAGES, training=True), features)


def test_all_but_batch_normalization_learn_and_then_it_does_too(model: tf_keras.Model) -> None:
    everything = len(model.trainable_weights)
    freeze(model, unfreeze="all")
    assert {w.name.partition("/")[2] for w in model.trainable_weights} == {"kernel:0", "bias:0"}
    unfreeze_everything(model)
    assert len(model.trainable_weights) == everything == 4 * 3 + 2


def test_depthwise_filters_learn_with_all_layers_only() -> None:
    model = build(ModelConfig(name="efficientnet_lite0", weights="none"))
    freeze(model, unfreeze="all")
    assert any("depthwise_kernel" in weight.name for weight in model.trainable_weights)
    freeze(model, unfreeze=2)
    learning = [weight.name.partition("/")[0] for weight in model.trainable_weights]
    assert learning == [
        "block_15_expand_conv",
        "block_15_project_conv",
        "top_conv",
        *["logits"] * 2,
    ]


def test_too_many_blocks_are_a_users_mistake(model: tf_keras.Model) -> None:
    with pytest.raises(ConfigurationError, match=r"unfreeze is 5, but cnn has only 4 blocks"):
        freeze(model, unfreeze=5)


@pytest.mark.slow
def test_dropout_differs_in_every_step_and_resumes() -> None:
    model = build(ModelConfig(name="cnn", width=2, dropout=0.5))
    start = model.get_weights()
    first, second = model(IMAGES, training=True), model(IMAGES, training=True)
    assert not np.array_equal(first, second)
    model.set_weights(start)
    np.testing.assert_array_equal(model(IMAGES, training=True), first)
    np.testing.assert_array_equal(model(IMAGES, training=True), second)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("efficientnet_lite0", [1, 17]),
        # Its dropout is replaced.
        pytest.param(V2, [11], marks=pytest.mark.weekly),
    ],
)
def test_a_network_divided_before_its_last_blocks_computes_the_same(
    name: str, numbers: list[int]
) -> None:
    config = ModelConfig(name=name, weights="none", dropout=0.0)
    model = build_model(config, size=64, classes=3, mean=(90.0,) * 3, variance=(3000.0,) * 3)
    random = np.random.default_rng(0)
    for layer in model.submodules:
        if isinstance(layer, tf_keras.layers.BatchNormalization):
            layer.set_weights([random.uniform(0.5, 2, size=w.shape) for w in layer.weights])
    images = random.integers(0, 256, (2, 64, 64, 3), np.uint8)
    expected = model(images, training=False).numpy()
    for blocks in numbers:
        divided = divide(model, blocks=blocks)
        assert divided
        frozen, rest = divided
        np.testing.assert_allclose(rest(frozen(images)), expected, rtol=1e-4, atol=1e-6)
        freeze(model, unfreeze=blocks)
        frozen_norms = rest(frozen(images), training=True)
        np.testing.assert_allclose(frozen_norms, expected, rtol=1e-4, atol=1e-6)
        assert not frozen.trainable_variables
        assert {v.ref() for v in rest.trainable_variables} == {
            v.ref() for v in model.trainable_variables
        }
    assert divide(model, blocks=len(Parts.of(model).blocks)) is None
