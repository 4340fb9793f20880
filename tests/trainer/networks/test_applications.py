"""Every real backbone of `keras.applications`, built at a small size with random weights."""

import functools
from typing import Any

import numpy as np
import pytest
import tf_keras

from components.trainer.config.model import APPLICATIONS, ModelConfig
from components.trainer.networks.parts import Parts
from tests.trainer.networks.networks import IMAGES, build, generators

# Name → the stem, residual blocks, layers between stages with a kernel, and the last convolution.
ONE_PER_FAMILY = {
    "mobilenet_v2": 1 + 17 + 1,
    "mobilenet_v3_small": 1 + 11 + 1,
    "efficientnet_v2_b0": 1 + 21 + 1,
    "efficientnet_v2_s": 1 + 40 + 1,
    "resnet50": 1 + 16,
    "resnet50_v2": 1 + 16,
    "convnext_tiny": 1 + 18 + 3,
    "densenet121": 1 + 58 + 3,
}
_MODULES = {
    "mobilenet_v2": tf_keras.applications.mobilenet_v2,
    "resnet50": tf_keras.applications.resnet,
    "resnet50_v2": tf_keras.applications.resnet_v2,
    "densenet121": tf_keras.applications.densenet,
}


def scaled_by_keras(network: tf_keras.Model, name: str) -> Any:
    """Return pixels as Keras's own code scales them for the first convolution."""
    if name in _MODULES:
        return _MODULES[name].preprocess_input(IMAGES.astype(np.float32))
    kinds = (tf_keras.layers.Rescaling, tf_keras.layers.Normalization)
    last = [layer for layer in network.layers if isinstance(layer, kinds)][-1]
    return tf_keras.Model(network.input, last.output)(IMAGES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name == "mobilenet_v2" else pytest.param(name, marks=pytest.mark.weekly)
        for name in ONE_PER_FAMILY
    ],
)
def test_backbone_is_that_of_keras(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tf_keras.utils.set_random_seed(0)
    constructor = getattr(tf_keras.applications, APPLICATIONS[name].constructor)
    theirs = constructor(input_shape=(32, 32, 3), include_top=False, weights=None, pooling="avg")

    @functools.wraps(constructor)
    def download(**options: Any) -> tf_keras.Model:
        assert options.pop("weights") == "imagenet"
        ours = constructor(weights=None, **options)
        ours.set_weights(theirs.get_weights()[-len(ours.get_weights()) :])
        return ours

    monkeypatch.setattr(tf_keras.applications, APPLICATIONS[name].constructor, download)
    model = build(ModelConfig(name=name, weights="imagenet"), seed=1)
    parts = Parts.of(model)
    pixels = scaled_by_keras(theirs, name)
    standardized = parts.backbone.get_layer("standardization")(IMAGES)
    np.testing.assert_allclose(standardized, pixels, rtol=1e-4, atol=1e-5)
    expected = theirs(pixels if name in _MODULES else IMAGES).numpy()
    atol = 1e-3 * np.abs(expected).max()
    np.testing.assert_allclose(parts.backbone(IMAGES), expected, atol=atol)
    assert len(parts.blocks) == ONE_PER_FAMILY[name]
    assert generators(model) == []
    assert np.isfinite(model(IMAGES, training=True)).all()
    tf_keras.backend.clear_session()
