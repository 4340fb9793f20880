from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline_def.config.training import TrainingConfig
from pipeline_def.training.determinism import set_determinism


@pytest.mark.parametrize(
    ("asked", "gpus", "expected"),
    [
        pytest.param(None, 0, True, id="on for CPU"),
        pytest.param(None, 1, False, id="off for a GPU"),
        pytest.param(True, 1, True, id="a choice for a GPU"),
        pytest.param(False, 0, False, id="a choice for CPU"),
    ],
)
def test_determinism_is_a_choice(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: bool | None,
    gpus: int,
    expected: bool,
) -> None:
    calls: list[Any] = []
    experimental = tf.config.experimental
    monkeypatch.setattr(experimental, "enable_op_determinism", lambda: calls.append(1))
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda _: ["GPU"] * gpus)
    config = TrainingConfig(deterministic=asked, seed=3)
    with caplog.at_level(logging.INFO):
        set_determinism(config, tf.distribute.get_strategy())
    assert bool(calls) == expected
    assert ("slower algorithms" in caplog.text) == (expected and gpus > 0)
    first = np.random.random()
    set_determinism(config, tf.distribute.get_strategy())
    assert np.random.random() == first
