import functools
import json
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.contract.errors import ConfigurationError
from components.trainer.config.training import TrainingConfig
from components.trainer.loop import strategy as strategies
from components.trainer.loop.strategy import (
    find_strategy,
    limit_threads,
    set_determinism,
)

TWO = json.dumps(
    {
        "cluster": {"worker": ["localhost:1", "localhost:2"]},
        "task": {"type": "worker", "index": 1},
    }
)
ONE = json.dumps({"cluster": {"chief": ["localhost:1"]}, "task": {"type": "chief", "index": 0}})


class Machine:
    """A machine with any number of GPUs and environment variables."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        patch.delenv("TF_CONFIG", raising=False)
        self.set(gpus=0)

    def set(self, *, gpus: int = 0, **environment: str) -> None:
        found = {"GPU": ["GPU"] * gpus, "CPU": ["CPU"]}
        self._patch.setattr(tf.config, "list_physical_devices", found.__getitem__)
        for name, value in environment.items():
            self._patch.setenv(name, value)

    def pretend(self) -> None:
        """Create strategies for absent devices too, marked with their kind."""
        for kind in ("gpu", "mirrored", "workers"):
            strategy = tf.distribute.OneDeviceStrategy("CPU:0")
            strategy.kind = kind
            create = functools.partial(lambda strategy, _: strategy, strategy)
            self._patch.setitem(strategies._STRATEGIES, kind, create)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("there", "chosen", "reason"),
    [
        pytest.param({}, "cpu", "no GPU or other worker", id="nothing"),
        pytest.param({"gpus": 1}, "gpu", "this machine has a GPU", id="a GPU"),
        pytest.param({"gpus": 2}, "mirrored", "this machine has 2 GPUs", id="GPUs"),
        pytest.param({"gpus": 2, "TF_CONFIG": ONE}, "mirrored", "2 GPUs", id="a cluster of one"),
        pytest.param({"gpus": 2, "TF_CONFIG": TWO}, "workers", "lists 2 processes", id="workers"),
    ],
)
def test_auto_chooses_the_available_accelerator_and_logs_why(
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
        pytest.param("gpu", {}, "accelerator is gpu, but TensorFlow finds no GPU", id="no GPU"),
        pytest.param("mirrored", {}, "mirrored, but TensorFlow finds no GPU", id="no GPUs"),
        pytest.param("workers", {}, "TF_CONFIG lists no other process", id="no TF_CONFIG"),
        pytest.param("workers", {"TF_CONFIG": ONE}, "lists no other process", id="one worker"),
        pytest.param("cpu", {"TF_CONFIG": TWO}, "each would train alone", id="ignored"),
        pytest.param("auto", {"TF_CONFIG": "{"}, "TF_CONFIG is '{'", id="malformed"),
        pytest.param("workers", {"TF_CONFIG": TWO}, "process of its own", id="too late"),
    ],
)
def test_an_unusable_accelerator_is_one_sentence(
    machine: Machine, accelerator: Any, there: dict[str, Any], sentence: str
) -> None:
    tf.constant(0)  # TensorFlow is in use, as in a second component of a process.
    machine.set(**there)
    with pytest.raises(ConfigurationError, match=sentence) as error:
        find_strategy(TrainingConfig(accelerator=accelerator))
    assert "\n" not in str(error.value)


def test_a_search_refuses_other_processes(machine: Machine) -> None:
    machine.set(TF_CONFIG=TWO)
    with pytest.raises(ConfigurationError, match="one machine, but TF_CONFIG lists 2 processes"):
        find_strategy(TrainingConfig(minutes=5))


def test_the_cpu_is_used_beside_a_running_gpu(machine: Machine) -> None:
    tf.constant(0)
    machine.set(gpus=1)
    with find_strategy(TrainingConfig(accelerator="cpu")).scope():
        assert tf.Variable(0.0).device.endswith("CPU:0")


@pytest.mark.parametrize(
    ("asked", "device", "expected"),
    [
        pytest.param(None, "", True, id="on for the default strategy"),
        pytest.param(None, "CPU", True, id="on for a CPU beside a GPU"),
        pytest.param(None, "GPU", False, id="off for a GPU"),
        pytest.param(True, "GPU", True, id="on for a GPU on request"),
        pytest.param(False, "", False, id="off for CPU on request"),
    ],
)
def test_determinism(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: bool | None,
    device: str,
    expected: bool,
) -> None:
    calls: list[Any] = []
    experimental = tf.config.experimental
    monkeypatch.setattr(experimental, "enable_op_determinism", lambda: calls.append(1))
    devices = SimpleNamespace(worker_devices=[f"/job:localhost/device:{device}:0"])
    strategy: Any = SimpleNamespace(extended=devices) if device else tf.distribute.get_strategy()
    config = TrainingConfig(deterministic=asked, seed=3)
    with caplog.at_level(logging.INFO):
        set_determinism(config, strategy)
    assert bool(calls) == expected
    assert ("slower algorithms" in caplog.text) == (expected and device == "GPU")
    first = np.random.random()
    set_determinism(config, strategy)
    assert np.random.random() == first


@pytest.mark.parametrize(("available", "expected"), [(2, [2, 2]), (8, [])])
def test_threads_follow_the_cpu_quota(
    monkeypatch: pytest.MonkeyPatch, available: int, expected: list[int]
) -> None:
    threads: list[int] = []
    for kind in ("intra", "inter"):
        name = f"set_{kind}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, name, threads.append)
    monkeypatch.setattr(strategies, "available_cpus", lambda: available)
    monkeypatch.setattr(strategies, "bound_cpus", lambda: 8)
    limit_threads()
    assert threads == expected
