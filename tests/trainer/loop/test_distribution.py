"""Training under distribution strategies, in processes of their own.

Logical devices and clusters must be set up before TensorFlow does anything else.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.input.shard_folder import ShardFolder
from tests.trainer.loop.trainer_process import cluster

# In one process, so that fixtures are created once.
pytestmark = [pytest.mark.xdist_group("replicas"), pytest.mark.slow]

Trained = dict[str, tuple[dict[str, list[float]], list[Any]]]


def train(shards: ShardFolder, target: Path, *names: str, **environment: str) -> Any:
    """Start a process that runs trainings of `replica_trainings` by name."""
    module = "tests.trainer.loop.replica_trainings"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module, str(shards.path), str(target), *names],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def read_results(process: Any, target: Path, *names: str) -> Trained:
    """Wait for a process, and return history and weights of its trainings."""
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
    """Trainings on 0 (no strategy at all), 1 and 2 logical CPUs; killed-2 was resumed."""
    target = tmp_path_factory.mktemp("trained")
    unreplicated = ("plain-0", "plain-1", "streamed-0")
    groups = unreplicated, ("plain-2", "streamed-2", "whole-2", "killed-2")
    started = [train(shard_folder, target, *names) for names in groups]
    return {
        name: result
        for process, names in zip(started, groups, strict=True)
        for name, result in read_results(process, target, *names).items()
    }


def test_strategies_learn_the_same_from_the_same_images(trained: Trained) -> None:
    whole = trained["plain-0"]
    assert whole[0]["loss"][-1] < whole[0]["loss"][0]
    assert_same(trained["plain-1"], whole)
    assert_close(trained["plain-2"], whole)
    assert_close(trained["streamed-2"], trained["streamed-0"])
    assert trained["streamed-0"][0] != whole[0]


def test_a_resumed_training_on_two_replicas_equals_an_uninterrupted_one(trained: Trained) -> None:
    assert_same(trained["killed-2"], trained["whole-2"])


def test_two_workers_learn_and_resume_as_one_process_does(
    shard_folder: ShardFolder, trained: Trained, tmp_path: Path
) -> None:
    folders, names = [tmp_path / "0", tmp_path / "1"], ("workers", "whole", "stopped")
    started = [
        train(shard_folder, folder, *names, **environment)
        for folder, environment in zip(folders, cluster(2), strict=True)
    ]
    first, second = (
        read_results(process, folder, *names)
        for process, folder in zip(started, folders, strict=True)
    )
    for name in names:
        assert_same(first[name], second[name])
    assert_close(first["workers"], trained["plain-2"])
    # It was resumed after an epoch.
    assert_same(first["stopped"], first["whole"])
