"""Trials in processes of their own: the search that shares its time, and what they train."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow_transform as tft

from pipeline_def.config.training import TrainingConfig
from pipeline_def.training.distribution.process_apart import ProcessApart, Receive, Send
from pipeline_def.training.preparation import Preparation, start_devices
from pipeline_def.training.search import side_by_side
from pipeline_def.training.search.side_by_side import SideBySide, count_processes
from pipeline_def.training.search.trials import PAUSED, Trial, TrialRunner, attempt
from tests.data.shard_folder import ShardFolder
from tests.training.test_run_fn import Graph
from tests.training.test_search import make, simulate
from tests.training.test_tuner import PLAIN, channels, configure


def answer(receive: Receive, send: Send) -> None:
    """Train trials of images without a real transform graph."""
    tft.TFTransformOutput = Graph
    side_by_side.answer(receive, send)


class Simulated:
    """A process that trains at once, on the clock of `simulate`."""

    fails = False
    machines = 1

    def __init__(self, *_: str) -> None:
        opened.append(self)
        self.orders: list[int] = []
        self._reader, self._writer = os.pipe()

    def fileno(self) -> int:
        return self._reader

    def send(self, message: Any) -> None:
        if "trial" not in message:
            return
        trial = Trial(**message["trial"])
        self.orders.append(trial.number)
        if self.fails and len(self.orders) == 2:
            os.close(self._writer)
            return
        attempt(runners[0], trial, message["rung"], deadline=1e9)
        # Side by side on the same machine, an epoch takes twice as long.
        facts = {**vars(trial), "epoch_seconds": 2.0 / self.machines}
        os.write(self._writer, json.dumps(facts).encode() + b"\n")

    def receive(self) -> Any:
        return json.loads(os.read(self._reader, 1_000_000) or "null")

    def stop(self) -> None:
        os.close(self._reader)


opened: list[Simulated] = []
runners: list[TrialRunner] = []


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "machines"), [(False, 1), (True, 1), (False, 2)])
def test_a_search_with_two_trials_at_the_same_time(
    fails: bool, machines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulate(monkeypatch, lambda trial: 0.7 + 0.01 * (7 * trial.number % 11))
    monkeypatch.setattr(side_by_side, "ProcessApart", Simulated)
    monkeypatch.setattr(Simulated, "fails", fails)
    monkeypatch.setattr(Simulated, "machines", machines)
    opened.clear()
    run = make(tmp_path, seconds=600, epochs=30)
    run.side, runners[:] = 2, [run.runner]
    if machines > 1:
        run.workers, run.alone = [Simulated()], 2.0  # type: ignore[list-item]
    run.run()
    apart = [number for process in opened for number in process.orders]
    # The recipe, what has helped elsewhere, and the longer training have all CPUs.
    assert apart
    assert not {trial.number for trial in run.trials if trial.role} & {*apart}
    assert not run.running
    assert run.left >= 0
    assert len({trial.number for trial in run.trials if trial.state != PAUSED}) > 3
    assert [trial.role for trial in run.trials].count("longer") == 1
    spent = sum(trial.seconds for trial in run.trials)
    assert spent == pytest.approx(sum(epochs for _, epochs in _increments(runs)))
    if fails:
        # The others go on one at a time, also those whose process has ended.
        assert len(apart) <= 4
        assert len(opened) == 2
        assert all(trial.scores for trial in run.trials)
    else:
        assert all(len(process.orders) > 1 for process in opened)
        shared = [trial for trial in run.trials if trial.shared]
        assert {trial.number for trial in shared} == {*apart}
        # An epoch costs the search its share of the time.
        assert min(trial.epoch_seconds for trial in shared) < 1.5


def _increments(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (trial, epochs) that each run has added."""
    before: dict[int, int] = {}
    added = []
    for number, epochs in runs:
        added.append((number, epochs - before.get(number, 0)))
        before[number] = epochs
    return added


def test_fewer_processes_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(memory: int, wanted: int = 4, cpus: int = 3, cache: Any = "decoded") -> Any:
        monkeypatch.setattr(side_by_side, "available_memory", lambda: memory)
        monkeypatch.setattr(side_by_side, "available_cpus", lambda: cpus)
        shards = SimpleNamespace(total=1000)
        plain = configure(Path(), TrainingConfig(minutes=5, parallel_trials=wanted))
        data = SimpleNamespace(
            config=replace(plain, input=replace(plain.input, cache=cache)),
            train=shards,
            evaluation=shards,
        )
        runner: Any = SimpleNamespace(data=data, strategy=None)
        return count_processes(runner)

    monkeypatch.setattr(side_by_side, "is_accelerated", lambda _: False)
    needed = 2000 * 32 * 32 * 3
    assert count(10 * needed) == (3, "there are 3 CPUs")
    assert count(10 * needed, cpus=8) == (4, "")
    few, why = count(5 * needed)
    assert few == 2
    assert "each needs 0.0 GiB for pixels" in why
    assert count(needed, cache="none") == (3, "there are 3 CPUs")
    assert count(0) == (1, "each needs 0.0 GiB for pixels, of 0.0 GiB of memory")
    monkeypatch.setattr(side_by_side, "is_accelerated", lambda _: True)
    assert count(10 * needed) == (1, "an accelerator trains one at a time")
    assert count(10 * needed, wanted=1) == (1, "")


def test_tfx_sets_how_many_trials_run_at_the_same_time(tmp_path: Path) -> None:
    from tfx.proto import tuner_pb2

    from components import ImageTuner

    config = configure(tmp_path, replace(PLAIN, minutes=5))
    tuner = ImageTuner(
        **channels(), config=config, tune_args=tuner_pb2.TuneArgs(num_parallel_trials=3)
    )
    given = json.loads(tuner.exec_properties["custom_config"])
    assert given["training"]["parallel_trials"] == 3


@pytest.mark.slow
def test_a_process_trains_as_the_search_itself_does(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_apart(module: str, _: str) -> ProcessApart:
        assert module == side_by_side.__name__
        processes.append(ProcessApart(__name__, answer.__name__))
        return processes[-1]

    processes: list[ProcessApart] = []
    monkeypatch.setattr(tft, "TFTransformOutput", Graph)
    monkeypatch.setattr(side_by_side, "ProcessApart", run_apart)
    config = configure(tmp_path, replace(PLAIN, minutes=5, epochs=3))
    files = {
        "train_files": [f"{shard_folder.path}/Split-train/*"],
        "eval_files": [f"{shard_folder.path}/Split-eval/*"],
        "transform_graph_path": "none",
    }
    strategy = start_devices(config)
    prepared = Preparation.of(SimpleNamespace(**files), config, strategy)
    data = replace(prepared.data, kept={})

    def begin(name: str) -> TrialRunner:
        return TrialRunner(
            data, prepared.build, strategy, 0, str(tmp_path / "logs"), str(tmp_path / name)
        )

    here, there = begin("here"), begin("there")
    values: dict[str, Any] = {"training.learning_rate": 0.003}
    one, two, three = Trial(1, values), Trial(1, values), Trial(2, {"model.width": 4})
    attempt(here, one, 1.0, deadline=1e9)
    others = SideBySide(there, files, 2)
    for trial in (two, three):
        assert others.has_room()
        others.start(trial, 1 / 3, seconds=1e9)
    assert not others.has_room()
    ended: list[Any] = []
    while len(ended) < 2:
        ended += others.wait(60) or [pytest.fail("A process has failed.")]
    assert two.state == three.state == PAUSED
    assert two.shared
    others.start(two, 1.0, seconds=1e9)
    while others.trainings:
        assert others.wait(60) is not None
    assert 0 < two.epoch_seconds < two.seconds
    assert (two.state, two.scores, two.right) == (one.state, one.scores, one.right)
    np.testing.assert_array_equal(here.read_logits(one)[0], there.read_logits(two)[0])
    # As when memory runs out.
    others.start(Trial(3, values), 1.0, seconds=1e9)
    processes[0]._process.kill()
    assert others.wait(60) is None
    others.close()
    assert all(process.wait() for process in processes)
