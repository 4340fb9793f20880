"""A run on this machine that hands its training to other processes."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.contract.errors import ConfigurationError, UserError, WorkerError
from pipeline_def.training.distribution import gathering
from pipeline_def.training.distribution.cluster import Cluster
from pipeline_def.training.distribution.gathering import Gathering, fetch_task
from tests.pictures import write_folder
from tests.training.distribution.trainer_process import cluster

ROOT = Path(__file__).parents[3]
GIVEN = dict.fromkeys(gathering._FIELDS, "somewhere")


def clusters(count: int) -> list[Cluster]:
    found = [Cluster.from_environment(one) for one in cluster(count)]
    return [one for one in found if one]


def meet(
    chief: Cluster, output: Path, *workers: Callable[[], Any]
) -> tuple[Exception | None, list[Any]]:
    """Return the error of the chief, and what each worker returns or raises."""
    found: dict[int, Any] = {}

    def take(number: int, worker: Callable[[], Any]) -> None:
        try:
            found[number] = worker()
        except UserError as error:
            found[number] = error

    leading = Gathering(chief, str(output), seconds=5)
    threads = [threading.Thread(target=take, args=of) for of in enumerate(workers)]
    for thread in threads:
        thread.start()
    error: Exception | None = None
    try:
        leading.train(SimpleNamespace(**GIVEN))
    except UserError as raised:
        error = raised
    finally:
        leading.close()
    for thread in threads:
        thread.join()
    return error, [found[number] for number in range(len(workers))]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was trained on; nothing is."""
    calls: list[Any] = []
    monkeypatch.setattr(gathering, "train_apart", calls.append)
    return calls


def test_workers_get_what_the_trainer_of_the_chief_was_given(
    tmp_path: Path, trained: list[Any]
) -> None:
    chief, *others = clusters(3)
    error, found = meet(chief, tmp_path, *(lambda of=of: fetch_task(of) for of in others))
    assert error is None
    assert found == [GIVEN, GIVEN]
    assert trained == [GIVEN]
    assert not list(tmp_path.iterdir()), "nothing of it stays in the output"


def test_a_worker_without_the_shared_output_stops_all(
    tmp_path: Path, trained: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    chief, worker = clusters(2)
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    error, [other] = meet(chief, tmp_path, lambda: fetch_task(worker))
    assert isinstance(error, ConfigurationError)
    assert isinstance(other, ConfigurationError)
    assert str(error) == str(other)
    assert f"worker 1 does not see the files in {tmp_path}" in str(error)
    assert not trained


def test_other_processes_in_tf_config_are_found(tmp_path: Path, trained: list[Any]) -> None:
    chief, worker = clusters(2)
    wrong = Cluster({"worker": (chief.chief, "elsewhere:1")}, "worker", 1)
    error, [other] = meet(chief, tmp_path, lambda: fetch_task(wrong))
    assert "worker 1 and the chief have different lists of processes" in str(error)
    assert str(other) == str(error)
    chief, worker, _ = clusters(3)
    error, _ = meet(chief, tmp_path, *[lambda: fetch_task(worker)] * 2)
    assert "Two processes say that they are worker 1" in str(error)
    assert not trained


def test_workers_of_a_run_from_the_cache_have_nothing_to_train(tmp_path: Path) -> None:
    chief, worker = clusters(2)
    leading = Gathering(chief, str(tmp_path))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(fetch_task(worker)))
    thread.start()
    while thread.is_alive():
        leading.close()
        leading = Gathering(chief, str(tmp_path))
        thread.join(0.05)
    leading.close()
    assert found == [None]


def test_neither_side_waits_forever(tmp_path: Path) -> None:
    chief, worker = clusters(2)
    leading = Gathering(chief, str(tmp_path), seconds=0.05)
    with pytest.raises(WorkerError, match=r"0 of 1 other processes of TF_CONFIG have connected"):
        leading.train(SimpleNamespace(**GIVEN))
    with pytest.raises(WorkerError, match=r"The chief at .* cannot be reached"):
        fetch_task(worker, seconds=0.05)
    with Gathering(chief, str(tmp_path))._server, pytest.raises(ConfigurationError) as error:
        Gathering(chief, str(tmp_path))
    assert "cannot be used (Address already in use" in str(error.value)


@pytest.mark.slow
def test_two_processes_run_one_pipeline(tmp_path: Path) -> None:
    write_folder(tmp_path / "images", each=40)
    command = [sys.executable, "local_runner.py", "--data", str(tmp_path / "images")]
    command += ["--output", str(tmp_path / "output"), "--training.epochs=2", "--model.name=cnn"]
    processes = [
        subprocess.Popen(
            [*command, "--training.accelerator=workers", "--evaluation.decide_by=value"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for environment in cluster(2)
    ]
    said = [process.communicate(timeout=500)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "Done; the chief has the results." in said[1]
    summary = json.loads((tmp_path / "output/summary.json").read_text())
    assert summary["pushed_model"]
    [log] = (tmp_path / "output/logs").iterdir()
    assert "with 2 replica(s)" in log.read_text()
    assert "2/2 acc" in said[0], "the epochs are shown"
