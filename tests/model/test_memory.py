from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.transform.config import TransformConfig
from pipeline_def.config.config import Config
from pipeline_def.config.model import NATIVE_SIZES, ModelConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.config.transfer import TransferConfig
from pipeline_def.model import memory

LARGE = Config(
    transform=TransformConfig(size=480),
    model=ModelConfig(name="efficientnet_v2_l"),
    training=TrainingConfig(batch_size=64, accelerator="cpu"),
)


def check(config: Config, monkeypatch: pytest.MonkeyPatch, *, gib: int, images: int = 9999) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: gib * 2**30)
    memory.check_memory(config, images=images)


def test_every_backbone_is_known() -> None:
    assert memory._FOOTPRINTS.keys() == NATIVE_SIZES.keys()


def test_what_cannot_fit_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"--training\.accumulate (\d+)") as error:
        check(LARGE, monkeypatch, gib=20)
    assert "batches of 64 images of 480 pixels" in str(error.value)
    parts = int(str(error.value).split("--training.accumulate ")[1].split(",")[0])
    training = replace(LARGE.training, accumulate=parts)
    check(replace(LARGE, training=training), monkeypatch, gib=20)
    with pytest.raises(ConfigurationError, match=r"choose a smaller --model.name"):
        check(replace(LARGE, training=training), monkeypatch, gib=2)


FITTING: dict[str, dict[str, Any]] = {
    "few images make a small batch": {"images": 2},
    "a small network": {"model": ModelConfig(name="mobilenet_v2")},
    "a network of our own": {"model": ModelConfig(name="cnn")},
    "frozen layers": {
        "model": ModelConfig(name="efficientnet_v2_l", weights="w.h5"),
        "transfer": TransferConfig(unfreeze="none"),
    },
}


@pytest.mark.parametrize("changes", FITTING.values(), ids=FITTING.keys())
def test_what_may_fit_is_not_refused(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = changes.get("images", 9999)
    fields = {name: value for name, value in changes.items() if name != "images"}
    check(replace(LARGE, **fields), monkeypatch, gib=20, images=images)


def test_the_memory_of_an_accelerator_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    training = replace(LARGE.training, accelerator="auto")
    check(replace(LARGE, training=training), monkeypatch, gib=1)


def leaves(model: Any) -> Iterator[Any]:
    for layer in model.layers:
        yield from leaves(layer) if hasattr(layer, "layers") else [layer]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_small", "resnet50"])
def test_footprints_are_those_of_the_networks(name: str) -> None:
    import numpy as np

    from pipeline_def.model.networks import build_model

    config = ModelConfig(name=name)
    model = build_model(config, size=96, classes=10, mean=[0.0] * 3, variance=[1.0] * 3)
    shapes = [layer.output_shape for layer in leaves(model)]
    shapes = [shape for shape in shapes if isinstance(shape, tuple)]
    outputs = sum(int(np.prod(shape[1:])) for shape in shapes) / 96**2
    known = memory._FOOTPRINTS[name]
    assert known.parameters == pytest.approx(model.count_params() / 1e6, rel=0.05)
    assert known.outputs == pytest.approx(outputs, rel=0.1)
