import functools
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.contract.errors import ConfigurationError
from components.trainer.config.training import TrainingConfig
from components.trainer.loop import strategy as strategies
from components.trainer.loop.cluster import Cluster
from components.trainer.loop.strategy import find_strategy, limit_threads, set_determinism

WORKERS = {"worker": ["a:1", "b:2"]}
WITH_CHIEF = {"chief": ["a:1"], **WORKERS}


def tf_config(cluster: Any, kind: str = "worker", index: Any = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


TWO, ONE = tf_config(WORKERS, index=1), tf_config({"chief": ["a:1"]}, "chief")


@pytest.mark.parametrize(
    ("text", "size", "chief"),
    [
        pytest.param(tf_config(WORKERS), 2, True, id="the first of workers alone"),
        pytest.param(tf_config(WORKERS, index=1), 2, False, id="another worker"),
        pytest.param(tf_config(WITH_CHIEF, "chief"), 3, True, id="a chief"),
        pytest.param(tf_config(WITH_CHIEF), 3, False, id="the first worker beside a chief"),
        pytest.param(tf_config(WORKERS, index="1"), 2, False, id="an index as text"),
        pytest.param("", 0, False, id="empty"),
        pytest.param("{}", 0, False, id="no cluster"),
    ],
)
def test_processes_of_a_cluster_and_the_chief_among_them(
    monkeypatch: pytest.MonkeyPatch, text: str, size: int, chief: bool
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    cluster = Cluster.from_environment()
    assert (cluster and (cluster.size, cluster.is_chief)) == ((size, chief) if size else None)


class Machine:
    """A machine with any number of GPUs and environment variables."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        patch.delenv("TF_CONFIG", raising=False)
        self.set(gpus=0)

    def set(self, *, gpus: int = 0, **environment: str) -> None:
        devices = {"GPU": ["GPU"] * gpus, "CPU": ["CPU"]}
        self._patch.setattr(tf.config, "list_physical_devices", devices.__getitem__)
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


# What there is, and what is chosen.
AUTO: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "cpu"),
    "a GPU": ({"gpus": 1}, "gpu"),
    "GPUs": ({"gpus": 3}, "mirrored"),
    "a cluster of one": ({"gpus": 2, "TF_CONFIG": ONE}, "mirrored"),
    "workers": ({"gpus": 2, "TF_CONFIG": TWO}, "workers"),
}


@pytest.mark.parametrize("name", AUTO)
def test_auto_chooses_the_available_accelerator(machine: Machine, name: str) -> None:
    there, chosen = AUTO[name]
    machine.set(**there)
    machine.pretend()
    assert getattr(find_strategy(TrainingConfig()), "kind", "cpu") == chosen


MALFORMED = {
    "{": "must be JSON such as",
    '{"cluster": 3, "task": {"type": "worker", "index": 0}}': "must be JSON such as",
    tf_config(WORKERS, index="first"): "must be JSON such as",
    tf_config(WORKERS, index=2): "task is worker 2, but it lists 2 of that type",
    tf_config(WORKERS, "evaluator"): "task is evaluator 0, but it lists 0 of that",
    tf_config(WORKERS, "chief"): "task is chief 0, but it lists 0 of that type",
    tf_config({"ps": ["a:1"], **WORKERS}): "it lists 'ps'",
}
UNUSABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "no GPU": ({"accelerator": "gpu"}, "", "is gpu, but TensorFlow finds no GPU"),
    "no GPUs": ({"accelerator": "mirrored"}, "", "is mirrored, but TensorFlow finds no GPU"),
    "no TF_CONFIG": ({"accelerator": "workers"}, "", "TF_CONFIG lists no other process"),
    "one worker": ({"accelerator": "workers"}, ONE, "TF_CONFIG lists no other process"),
    "ignored": ({"accelerator": "cpu"}, TWO, "each would train alone"),
    "a search": ({"minutes": 5}, TWO, "one machine, but TF_CONFIG lists 2 processes"),
    "too late": ({"accelerator": "workers"}, TWO, "process of its own"),
    **{text: ({}, text, f"TF_CONFIG .*{said}") for text, said in MALFORMED.items()},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_accelerator_is_one_sentence(machine: Machine, name: str) -> None:
    options, cluster, sentence = UNUSABLE[name]
    tf.constant(0)  # TensorFlow is in use, as in a second component of a process.
    machine.set(TF_CONFIG=cluster)
    with pytest.raises(ConfigurationError, match=sentence) as error:
        find_strategy(TrainingConfig(**options))
    assert "\n" not in str(error.value)


def test_the_cpu_is_used_beside_a_running_gpu(machine: Machine) -> None:
    tf.constant(0)
    machine.set(gpus=1)
    with find_strategy(TrainingConfig(accelerator="cpu")).scope():
        assert tf.Variable(0.0).device.endswith("CPU:0")


# The option, the device, and whether operations are deterministic.
DETERMINISM = {
    "on for the default strategy": (None, "", True),
    "on for a CPU beside a GPU": (None, "CPU", True),
    "off for a GPU": (None, "GPU", False),
    "on for a GPU on request": (True, "GPU", True),
    "off for CPU on request": (False, "", False),
}


@pytest.mark.parametrize("name", DETERMINISM)
def test_determinism(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked, device, expected = DETERMINISM[name]
    calls: list[Any] = []
    experimental = tf.config.experimental
    monkeypatch.setattr(experimental, "enable_op_determinism", lambda: calls.append(1))
    devices = SimpleNamespace(worker_devices=[f"/job:localhost/device:{device}:0"])
    strategy: Any = SimpleNamespace(extended=devices) if device else tf.distribute.get_strategy()
    config = TrainingConfig(deterministic=asked, seed=3)
    set_determinism(config, strategy)
    assert bool(calls) == expected
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
