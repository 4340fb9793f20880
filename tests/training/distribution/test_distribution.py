"""Input and training under distribution strategies, in processes of their own.

Logical devices and clusters must be set up before TensorFlow does anything else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.shard_folder import SIZE, ShardFolder
from tests.training.distribution.trainer_process import cluster

# What a process prints: the sorted hashes of the images of each step, of its replicas.
_WORKER = """
import hashlib, json, sys
import tensorflow as tf

examples, kind, reader, size = sys.argv[1:4] + [int(sys.argv[4])]
if kind == "mirrored":
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
elif kind == "workers":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif kind == "one":
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
else:
    strategy = tf.distribute.get_strategy()

from pipeline_def.config.config import TransformConfig
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.sampler import TrainingOrder
from pipeline_def.config.input import InputConfig
from pipeline_def.data.shards import Shards
from components.contract.example import ENCODED, LABEL_ID

def read(part):
    return make_dataset(
        Shards.of_pattern(f"{examples}/Split-train/*"),
        config=TransformConfig(size=size),
        feature_spec={
            ENCODED: tf.io.FixedLenFeature([], tf.string),
            LABEL_ID: tf.io.FixedLenFeature([], tf.int64),
        },
        batch_size=part.get_per_replica_batch_size(8),
        options=InputConfig(reader=reader, cache="none"),
        order=TrainingOrder(seed=3).for_worker(2, part),
    )

def digests(images):
    return [hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in images.numpy()]

batches = iter(strategy.distribute_datasets_from_function(read))
for _ in range(6):
    images, _ = next(batches)
    local = strategy.experimental_local_results(images)
    print(json.dumps(sorted(d for replica in local for d in digests(replica))))
"""


def run(shard_folder: ShardFolder, kind: str, reader: str, **environment: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(shard_folder.path), kind, reader, str(SIZE)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def steps(process: Any) -> list[list[str]]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines() if line.startswith("[")]


@pytest.mark.slow
def test_every_strategy_gives_a_step_the_same_images(shard_folder: ShardFolder) -> None:
    expected = steps(run(shard_folder, "default", "indexed"))
    assert len(expected) == 6
    assert len({digest for step in expected for digest in step}) == 48
    for kind in ("one", "mirrored"):
        assert steps(run(shard_folder, kind, "indexed")) == expected
    workers = [run(shard_folder, "workers", "indexed", **each) for each in cluster(2)]
    parts = [steps(worker) for worker in workers]
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == expected


@pytest.mark.slow
def test_streaming_replicas_share_what_is_read(shard_folder: ShardFolder) -> None:
    assert steps(run(shard_folder, "mirrored", "streamed")) == steps(
        run(shard_folder, "default", "streamed")
    )


Trained = dict[str, tuple[dict[str, list[float]], list[Any]]]


def train(shards: ShardFolder, target: Path, *names: str, **environment: str) -> Any:
    """Start a process that runs trainings by the names that `replica_trainings` knows."""
    module = "tests.training.distribution.replica_trainings"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module, str(shards.path), str(target), *names],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def read_results(process: Any, target: Path, *names: str) -> Trained:
    """Wait for a process; return history and weights of its trainings."""
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-2000:]
    results = {}
    for name in names:
        with np.load(target / f"{name}.npz") as arrays:
            history, *weights = (arrays[key] for key in arrays.files)
        results[name] = json.loads(str(history)), weights
    return results


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours[0] == theirs[0]
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(a, b)


def assert_close(ours: Any, theirs: Any) -> None:
    for name, values in theirs[0].items():
        np.testing.assert_allclose(ours[0][name], values, rtol=1e-5, err_msg=name)
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def trained(shard_folder: ShardFolder, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trainings on 0 (no strategy at all), 1, 2 and 4 logical CPUs; killed-2 went on after it."""
    target = tmp_path_factory.mktemp("trained")
    groups = ("plain-0", "plain-1", "plain-4"), ("plain-2", "whole-2"), ("killed-2",)
    *started, killed = [train(shard_folder, target, *names) for names in groups]
    assert killed.wait(300) == -signal.SIGKILL
    started.append(train(shard_folder, target, "killed-2"))
    return {
        name: result
        for process, names in zip(started, groups, strict=True)
        for name, result in read_results(process, target, *names).items()
    }


@pytest.mark.slow
def test_strategies_learn_the_same_from_the_same_images(trained: Trained) -> None:
    whole = trained["plain-0"]
    assert whole[0]["loss"][-1] < whole[0]["loss"][0]
    assert_same(trained["plain-1"], whole)
    assert_close(trained["plain-2"], whole)
    assert_close(trained["plain-4"], whole)


@pytest.mark.slow
def test_a_killed_training_on_two_replicas_ends_as_if_it_had_not_been(trained: Trained) -> None:
    assert_same(trained["killed-2"], trained["whole-2"])


@pytest.mark.slow
def test_two_workers_learn_the_same_as_one_process(
    shard_folder: ShardFolder, trained: Trained, tmp_path: Path
) -> None:
    folders = [tmp_path / str(index) for index in range(2)]
    started = [
        train(shard_folder, folder, "workers", **environment)
        for folder, environment in zip(folders, cluster(2), strict=True)
    ]
    # The workers of this test have no common folder; without a checkpoint they need none.
    first, second = (
        read_results(process, folder, "workers")["workers"]
        for process, folder in zip(started, folders, strict=True)
    )
    assert_same(first, second)
    assert_close(first, trained["plain-2"])
