import glob
from dataclasses import replace
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.images.options import TransformConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainingConfig, TransferConfig
from pipeline_def.config.config import Config
from pipeline_def.local import first_look
from pipeline_def.local.first_look import check_accelerator

LARGE = Config(
    transform=TransformConfig(size=480),
    model=ModelConfig(name="efficientnet_v2_l"),
    training=TrainingConfig(batch_size=64, accelerator="cpu"),
)


def check(config: Config, monkeypatch: pytest.MonkeyPatch, *, gib: int, images: int = 9999) -> None:
    monkeypatch.setattr(first_look, "available_memory", lambda: gib * 2**30)
    first_look.check_memory(config, images=images)


def test_too_little_memory_is_an_error_with_settings_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigurationError, match=r"--training\.batch_size (\d+)") as error:
        check(LARGE, monkeypatch, gib=20)
    assert "batches of 64 images of 480 pixels" in str(error.value)
    size = int(str(error.value).split("--training.batch_size ")[1].split(",")[0])
    training = replace(LARGE.training, batch_size=size)
    check(replace(LARGE, training=training), monkeypatch, gib=20)
    with pytest.raises(ConfigurationError, match=r"available: choose a smaller --model.name"):
        check(replace(LARGE, training=training), monkeypatch, gib=2)


@pytest.mark.parametrize("kind", ["gpu", "workers", "tpu"])
def test_an_accelerator_that_is_not_there(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob, "glob", lambda pattern: [])
    with pytest.raises(ConfigurationError, match=f"accelerator is {kind}, but .* cpu or auto"):
        check_accelerator(TrainingConfig(accelerator=kind))
    monkeypatch.setattr(glob, "glob", lambda pattern: [pattern])
    check_accelerator(TrainingConfig(accelerator="gpu"))


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
def test_a_training_that_may_fit_is_accepted(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = changes.get("images", 9999)
    fields = {name: value for name, value in changes.items() if name != "images"}
    check(replace(LARGE, **fields), monkeypatch, gib=20, images=images)


def test_the_memory_of_accelerators_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    training = replace(LARGE.training, accelerator="auto")
    check(replace(LARGE, training=training), monkeypatch, gib=1)
