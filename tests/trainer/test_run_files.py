import logging
from typing import Any

import pytest

from components.contract.model_files import INPUT_WAIT_FRACTION, RATE
from components.images.options import TransformConfig
from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.training import TrainerConfig
from components.trainer.input.shards import Shards
from components.trainer.loop.checkpoint import Progress
from components.trainer.loop.train import Phase
from components.trainer.run_files import describe_input
from components.trainer.training_input import TrainingInput


def describe(
    waits: list[float], *, cache: Any = "none", storage: Any = "jpeg", **more: Any
) -> dict[str, Any]:
    shards = Shards(more.get("uri", "/examples"), "train", {"data": more.get("records", 1000)})
    history = {RATE: [10.0, 300.0, 200.0, 400.0][: len(waits)], INPUT_WAIT_FRACTION: waits}
    phase = Phase("train", Progress(history=history), 1.0, 10, more.get("on_features", False))
    transform = TransformConfig(size=100, storage=storage)
    config = TrainerConfig(
        transform=transform,
        input=InputConfig(cache=cache),
        augmentation=AugmentationConfig(min_crop_area=0.5),
    )
    return describe_input(phase, TrainingInput(shards, shards, {}, config, batch_size=8))


def test_medians_of_the_epochs_but_the_first_if_there_are_others() -> None:
    for waits, rate, wait in (([0.9, 0.02, 0.02, 0.02], 300.0, 0.02), ([0.01], 10.0, 0.01)):
        expected = {RATE: rate, INPUT_WAIT_FRACTION: wait, "cache": "none", "advice": None}
        assert describe(waits) == expected


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({}, "set input.cache to decoded, which takes 0.0 GiB"),
        ({"cache": "decoded"}, "pixels are cached already"),
        ({"records": 10**9}, "transform.storage to raw; either takes 27,939.7 GiB"),
        ({"records": 10**9, "storage": "raw"}, "a faster disk"),
        ({"records": 10**9, "uri": "gs://bucket/examples"}, "set input.cache to file"),
        ({"on_features": True}, ""),
    ],
)
def test_advice_when_training_waits(
    more: dict[str, Any], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        said = describe([0.9, 0.4, 0.4, 0.4], **more)["advice"]
    assert advice in (said or "")
    assert bool(said) == ("Training waited for input 40 % of the time" in caplog.text)
    assert bool(said) == bool(advice)
