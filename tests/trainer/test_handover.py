"""A run on this machine that hands its training to other processes."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.contract.errors import ConfigurationError, StorageError, UserError, WorkerError
from components.host.lock import locked
from components.trainer import handover
from components.trainer.executor import train_with_workers
from components.trainer.handover import Handover, handing_over, take_part
from components.trainer.loop.cluster import Cluster
from pipeline_def.layout import Layout
from tests.pictures import write_folder
from tests.trainer.loop.trainer_process import cluster

ROOT = Path(__file__).parents[2]
GIVEN = {
    "train_files": ["a"],
    "eval_files": ["b"],
    "transform_graph_path": "graph",
    "hyperparameters": None,
    "serving_model_dir": "model",
    "model_run_dir": "run",
    "custom_config": {"training": {"epochs": 3}},
}


def clusters(count: int) -> list[Cluster]:
    found = [Cluster.from_environment(one) for one in cluster(count)]
    return [one for one in found if one]


@pytest.fixture(autouse=True)
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a run in progress, whose processes look at it often."""
    monkeypatch.setattr(handover, "_PAUSE", 0.01)
    with locked(Layout(str(tmp_path)).lock, "the output", say=print):
        yield tmp_path


class Worker(threading.Thread):
    """A worker that waits for a task, in a thread; `result` is what it returns or raises."""

    def __init__(self, cluster: Cluster, output: Path, *, seconds: float = 60) -> None:
        super().__init__()
        self._handover = Handover(cluster, str(output), seconds=seconds)
        self.result: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._handover.fetch()
        except UserError as error:
            self.result = error


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was trained on; nothing is."""
    calls: list[Any] = []
    monkeypatch.setattr(handover, "train_apart", calls.append)
    return calls


def results(*workers: Worker) -> list[Any]:
    for worker in workers:
        worker.join(30)
    return [worker.result for worker in workers]


def test_workers_get_what_the_trainer_of_the_chief_was_given(
    output: Path, trained: list[Any]
) -> None:
    """Neither the task nor the file of a worker that an earlier run has left is taken."""
    chief, *others = clusters(3)
    folder = output / ".workers"
    folder.mkdir()
    left = {"id": "0", "cluster": chief.addresses}
    (folder / "worker 1.json").write_text(json.dumps(left))
    (folder / "answer.json").write_text(json.dumps({"workers": ["0"], "arguments": {}}))
    workers = [Worker(one, output) for one in others]
    with handing_over(chief, str(output)):
        train_with_workers(SimpleNamespace(**GIVEN, other="not for run_fn"))
        assert results(*workers) == [GIVEN, GIVEN]
    assert trained == [GIVEN]
    assert not folder.exists()


def test_other_processes_in_tf_config_are_found(output: Path, trained: list[Any]) -> None:
    chief, _ = clusters(2)
    wrong = Cluster({"worker": [chief.addresses["worker"][0], "elsewhere:1"]}, "worker", 1)
    waiting = Worker(wrong, output)
    sentence = "worker 1 and the chief have different lists of processes in TF_CONFIG"
    with pytest.raises(ConfigurationError, match=sentence), handing_over(chief, str(output)):
        train_with_workers(SimpleNamespace(**GIVEN))
    [error] = results(waiting)
    assert isinstance(error, WorkerError)
    assert sentence in str(error)
    assert not trained


@pytest.mark.parametrize(
    ("error", "result"),
    [
        pytest.param(None, "None", id="the model is cached"),
        pytest.param(StorageError("The disk is full."), "The chief has stopped: The disk is full."),
        pytest.param(KeyError("a bug"), "None", id="a bug, which the chief prints"),
    ],
)
def test_workers_learn_how_a_run_without_training_ended(
    output: Path, error: Exception | None, result: str
) -> None:
    chief, other = clusters(2)
    worker = Worker(other, output)
    while not (output / ".workers" / "worker 1.json").exists():
        worker.join(0.01)

    def run() -> None:
        with handing_over(chief, str(output)):
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            run()
    else:
        run()
    [found] = results(worker)
    assert str(found) == result


def test_neither_side_waits_forever(output: Path, tmp_path_factory: Any) -> None:
    chief, worker, _ = clusters(3)
    leading = Handover(chief, str(output), seconds=0.05)
    waiting = Worker(worker, output)
    with pytest.raises(WorkerError, match=r"worker 2 did not start within 0 s: start local_run"):
        leading.train(SimpleNamespace(**GIVEN))
    leading.close()
    assert results(waiting) == [None]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    [error] = results(Worker(worker, elsewhere, seconds=0.05))
    assert f"No run has used {elsewhere} for 0 s: start the chief" in str(error)
    assert not list((elsewhere / ".workers").iterdir())


@pytest.mark.parametrize("process", [0, 1])
def test_an_output_in_a_bucket_is_refused(process: int) -> None:
    asked = clusters(2)[process]
    with pytest.raises(ConfigurationError, match="needs an --output on a disk that they share"):
        take_part(asked, "gs://b/out") if process else handing_over(asked, "gs://b/o").__enter__()


@pytest.mark.slow
def test_an_error_of_the_process_that_trains_is_the_chiefs() -> None:
    with pytest.raises(ConfigurationError, match="unknown"):
        handover.train_apart({**GIVEN, "custom_config": {"unknown": 1}})


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
