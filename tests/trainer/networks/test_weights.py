"""Weights of one network in another: those that fit, and the messages about others."""

from dataclasses import replace

import numpy as np
import pytest
import tf_keras

from components.contract.errors import ModelError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.parts import Parts, save_backbone
from tests.trainer.networks.networks import IMAGES, build, train

CNN = ModelConfig(name="cnn", width=2)
OTHER_DATA = {"mean": [1.0, 2, 3], "variance": [1.0, 1, 1]}


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> tuple[tf_keras.Model, str]:
    """A trained network, and the file of its backbone."""
    model, path = build(CNN), str(tmp_path_factory.mktemp("donor") / "backbone.npz")
    train(model)
    assert save_backbone(model, path)
    return model, path


@pytest.mark.slow
def test_the_receiver_has_the_features_of_the_donor(donor: tuple[tf_keras.Model, str]) -> None:
    model, path = donor
    receiver = build(replace(CNN, weights=path), seed=1, classes=3, **OTHER_DATA)
    ours, theirs = Parts.of(receiver).backbone, Parts.of(model).backbone
    np.testing.assert_array_equal(ours(IMAGES), theirs(IMAGES))
    assert len(receiver.trainable_weights) == len(model.trainable_weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "message"),
    [
        (
            *("cnn", 4),
            r"cnn: block_1_conv has weights of shapes \[\(3, 3, 3, 4\)\], the file has "
            r"\[\(3, 3, 3, 2\)\]; model.width must be the same",
        ),
        ("resnet9", 2, r"it contains weights of cnn; set model.name to that"),
    ],
)
def test_weights_that_do_not_fit_are_one_sentence(
    donor: tuple[tf_keras.Model, str], name: str, width: int, message: str
) -> None:
    config = ModelConfig(name=name, width=width, weights=donor[1])
    with pytest.raises(ModelError, match=message) as caught:
        build(config)
    assert str(caught.value).startswith(f"model.weights {donor[1]} does not fit model.name")
