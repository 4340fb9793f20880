from __future__ import annotations

import functools
import json
import logging
from typing import Any

import pytest
import tensorflow as tf

from components.contract.errors import ConfigurationError
from pipeline_def.config.training import TrainingConfig
from pipeline_def.training.distribution import strategy as resolver
from pipeline_def.training.distribution.strategy import find_strategy

TWO = json.dumps(
    {
        "cluster": {"worker": ["localhost:1", "localhost:2"]},
        "task": {"type": "worker", "index": 1},
    }
)
ONE = json.dumps({"cluster": {"chief": ["localhost:1"]}, "task": {"type": "chief", "index": 0}})


class Machine:
    """A machine with so many GPUs, on which every strategy can be made by its name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        for name in ("TF_CONFIG", "TPU_NAME"):
            patch.delenv(name, raising=False)
        self.set(gpus=0)

    def set(self, *, gpus: int = 0, **environment: str) -> None:
        found = {"GPU": ["GPU"] * gpus, "CPU": ["CPU"]}
        self._patch.setattr(tf.config, "list_physical_devices", found.__getitem__)
        for name, value in environment.items():
            self._patch.setenv(name, value)

    def pretend(self) -> None:
        """Make strategies for devices that are not here by their name."""
        for kind in ("gpu", "mirrored", "workers", "tpu"):
            strategy = tf.distribute.OneDeviceStrategy("CPU:0")
            strategy.kind = kind
            made = functools.partial(_ignore, strategy)
            self._patch.setitem(resolver._STRATEGIES, kind, made)


def _ignore(strategy: Any, _: Any) -> Any:
    return strategy


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("there", "chosen", "reason"),
    [
        pytest.param({}, "cpu", "there is neither", id="nothing"),
        pytest.param({"gpus": 1}, "gpu", "this machine has a GPU", id="a GPU"),
        pytest.param({"gpus": 2}, "mirrored", "this machine has 2 GPUs", id="GPUs"),
        pytest.param({"gpus": 2, "TF_CONFIG": ONE}, "mirrored", "2 GPUs", id="a cluster of one"),
        pytest.param({"gpus": 2, "TF_CONFIG": TWO}, "workers", "2 processes", id="workers"),
        pytest.param({"TF_CONFIG": TWO, "TPU_NAME": "t"}, "tpu", "TPU_NAME is t", id="a TPU"),
    ],
)
def test_auto_takes_what_is_there_and_says_why(
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
    there: dict[str, Any],
    chosen: str,
    reason: str,
) -> None:
    machine.set(**there)
    machine.pretend()
    with caplog.at_level(logging.INFO):
        found = find_strategy(TrainingConfig())
    assert getattr(found, "kind", "cpu") == chosen
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("accelerator", "there", "sentence"),
    [
        pytest.param("gpu", {}, "accelerator is gpu, and TensorFlow finds no GPU", id="no GPU"),
        pytest.param("mirrored", {}, "mirrored, and TensorFlow finds no GPU", id="no GPUs"),
        pytest.param("workers", {}, "TF_CONFIG names no other process", id="no TF_CONFIG"),
        pytest.param("workers", {"TF_CONFIG": ONE}, "names no other process", id="one worker"),
        pytest.param("tpu", {}, "TPU_NAME is not set", id="no TPU"),
        pytest.param("tpu", {"TPU_NAME": "http://x"}, "TPU_NAME is http://x", id="not a TPU"),
        pytest.param("cpu", {"TF_CONFIG": TWO}, "each of which would train alone", id="ignored"),
        pytest.param("auto", {"TF_CONFIG": "{"}, "TF_CONFIG is '{'", id="malformed"),
        pytest.param("workers", {"TF_CONFIG": TWO}, "process of its own", id="too late"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    machine: Machine, accelerator: Any, there: dict[str, Any], sentence: str
) -> None:
    tf.constant(0)  # TensorFlow is in use, as it is in a step after another in one process.
    machine.set(**there)
    with pytest.raises(ConfigurationError, match=sentence) as error:
        find_strategy(TrainingConfig(accelerator=accelerator))
    assert "\n" not in str(error.value)


def test_a_tpu_is_connected_by_its_name(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[str] = []
    monkeypatch.setattr(
        tf.distribute.cluster_resolver.TPUClusterResolver, "connect", connected.append
    )
    made = tf.distribute.OneDeviceStrategy("CPU:0")
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda _: made)
    machine.set(TPU_NAME="node-1")
    assert find_strategy(TrainingConfig()) is made
    assert connected == ["node-1"]


def test_the_cpu_is_used_beside_a_gpu_that_is_running(machine: Machine) -> None:
    tf.constant(0)
    machine.set(gpus=1)
    with find_strategy(TrainingConfig(accelerator="cpu")).scope():
        assert tf.Variable(0.0).device.endswith("CPU:0")
