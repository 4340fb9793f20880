from __future__ import annotations

import logging
from typing import Any

import pytest

from components.contract.model_files import INPUT_WAIT_FRACTION, RATE
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.shards import Shards
from pipeline_def.training import input_report
from pipeline_def.training.input_report import report_input


def shards(uri: str = "/examples", records: int = 1000) -> Shards:
    return Shards(uri, "train", {"data": records})


def report(share: float, cache: Any = "none", **more: Any) -> input_report.InputReport:
    history = {RATE: [10.0, 300.0, 200.0, 400.0], INPUT_WAIT_FRACTION: [0.9, share, share, share]}
    config = TransformConfig(size=100, storage=more.pop("storage", "jpeg"))
    return report_input(history, InputConfig(cache=cache), shards(**more), config)


def test_the_first_epoch_does_not_count() -> None:
    assert report(0.02) == input_report.InputReport(300.0, 0.02, "none", None)


def test_a_single_epoch_does() -> None:
    history = {RATE: [10.0], INPUT_WAIT_FRACTION: [0.01]}
    found = report_input(history, InputConfig(cache="none"), shards(), TransformConfig(size=8))
    assert (found.images_per_second, found.input_wait_fraction) == (10.0, 0.01)


@pytest.mark.parametrize(
    ("cache", "more", "advice"),
    [
        ("none", {}, "set input.cache to decoded, which takes 0.0 GiB"),
        ("decoded", {}, "pixels are cached already"),
        ("none", {"records": 10**9}, "transform.storage to raw; either takes 27,939.7 GiB"),
        ("none", {"records": 10**9, "storage": "raw"}, "a faster disk"),
        ("none", {"records": 10**9, "uri": "gs://bucket/examples"}, "raise input.interleave"),
    ],
)
def test_advice_when_training_waits(
    cache: str, more: dict[str, Any], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = report(0.4, cache, **more).advice
    assert found
    assert advice in found
    assert "benchmarks.input_pipeline" in found
    assert "Training waited 40 % of its time for input" in caplog.text
