"""EfficientNet-Lite with ImageNet's weights."""

import numpy as np
import pytest

from components.trainer.config.model import ModelConfig
from components.trainer.networks.networks import build_model
from components.trainer.networks.parts import Parts

LITE = ModelConfig(name="efficientnet_lite0", weights="imagenet")
BLOCKS = {"efficientnet_lite0": 1 + 16 + 1}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_the_network_are_found(name: str) -> None:
    config = ModelConfig(name=name, weights="imagenet")
    model = build_model(config, size=32, classes=2, mean=(0,) * 3, variance=(1,) * 3)
    parts = Parts.of(model)
    assert len(parts.blocks) == BLOCKS[name]
    features = parts.backbone(np.zeros([1, 32, 32, 3], np.uint8)).numpy()
    assert features.shape == (1, 1280)
    assert np.isfinite(features).all()
