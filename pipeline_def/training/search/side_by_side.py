"""Trials that are trained at the same time, by processes that share the CPUs and by workers.

Small networks and batches leave CPUs idle: on two cores, two trainings of ResNet-9 took a tenth
less time side by side. A process has as many threads as the search itself, because their number
changes how sums are rounded; bound to its own CPUs, it was faster than sharing them all.
"""

import contextlib
import dataclasses
import os
import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from components.contract.configuration import from_dict, to_dict
from components.host.machine import available_cpus, available_memory, fits_in_memory, gib
from pipeline_def.config.training import TrainerConfig
from pipeline_def.data.cache import pixel_bytes
from pipeline_def.training.distribution.process_apart import ProcessApart, Receive, Send
from pipeline_def.training.distribution.strategy import is_accelerated
from pipeline_def.training.search.trials import Trial, TrialRunner, attempt
from pipeline_def.training.search.workers import Worker

# What only the search knows, or what it measures otherwise.
_KEPT = {"number", "values", "role", "seconds", "start_up", "finished"}


@dataclass
class _Training:
    """A trial in a process."""

    trial: Trial
    began: float
    charged: float
    """Its seconds before."""


class SideBySide:
    """The processes, and the trials that they train."""

    def __init__(
        self,
        runner: TrialRunner,
        files: Mapping[str, Any],
        count: int,
        workers: Sequence[Worker] = (),
    ) -> None:
        """Start nothing yet.

        Args:
            runner: of the search.
            files: what TFX has passed, by its names: shards and transform graph.
            count: number of trials, at least one for each worker.
            workers: other machines, which train one trial each.
        """
        self.count = count
        self.trainings: dict[ProcessApart | Worker, _Training] = {}
        self._runner, self._files, self._workers = runner, files, workers
        self._processes: list[ProcessApart | Worker] = []
        self._charged = 0.0

    def has_room(self) -> bool:
        """Return whether a process is free."""
        return len(self.trainings) < self.count

    def start(self, trial: Trial, rung: float, *, seconds: float) -> None:
        """Start to train a trial up to a rung; after so many seconds, it pauses."""
        self.charge()
        free = (one for one in self._processes if one not in self.trainings)
        process = next(free, None) or self._open()
        given = dataclasses.asdict(trial)
        self.trainings[process] = _Training(trial, time.perf_counter(), trial.seconds)
        process.send({"trial": given, "rung": rung, "seconds": seconds})

    def charge(self) -> None:
        """Divide the time since the last call among the trials in training."""
        now = time.perf_counter()
        for training in self.trainings.values():
            training.trial.seconds += (now - self._charged) / len(self.trainings)
        self._charged = now

    def wait(self, seconds: float) -> list[tuple[Trial, float]] | None:
        """Wait for trials; return each with its seconds before, or None if a process has failed.

        Raises:
            UserError: a process ended with it.
        """
        with selectors.DefaultSelector() as selector:
            for process in self.trainings:
                selector.register(process, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(seconds)]
        self.charge()
        ended = []
        for process in [one for one in self.trainings if one in ready]:
            if (facts := process.receive()) is None:
                return None
            training = self.trainings.pop(process)
            _update(training, facts)
            ended.append((training.trial, training.charged))
        return ended

    def close(self) -> None:
        """End all processes; unfinished trials can go on from their last epoch."""
        self.charge()
        self.trainings.clear()
        for process in self._processes:
            process.stop()
        self._processes.clear()

    def _open(self) -> ProcessApart | Worker:
        """Let another worker begin, or start another process."""
        runner, number = self._runner, len(self._processes) - len(self._workers)
        task: dict[str, Any] = {
            "files": dict(self._files),
            "config": to_dict(runner.data.config),
            "place": [runner.folds, runner.log_dir, runner.directory],
        }
        process: ProcessApart | Worker
        if number < 0:
            process = self._workers[number]
        else:
            process, cpus = ProcessApart(__name__, "answer"), sorted(os.sched_getaffinity(0))
            here = self.count - len(self._workers)
            first, last = (len(cpus) * one // here for one in (number, number + 1))
            task["cpus"] = cpus[first:last]
        process.send(task)
        self._processes.append(process)
        return process


def _update(training: _Training, facts: dict[str, Any]) -> None:
    """Record what a process has found."""
    trial, before = training.trial, training.trial.epoch_seconds
    for name in facts.keys() - _KEPT:
        setattr(trial, name, facts[name])
    if trial.epoch_seconds != before:
        # As the seconds of the search are divided, too.
        share = (trial.seconds - training.charged) / (time.perf_counter() - training.began)
        trial.epoch_seconds *= share
    trial.shared = True


def count_processes(runner: TrialRunner) -> tuple[int, str]:
    """Return how many trials to train at the same time, and why fewer than the user wants."""
    data = runner.data
    wanted = data.config.training.parallel_trials
    if wanted > 1 and is_accelerated(runner.strategy):
        return 1, "an accelerator trains one at a time"
    count = min(wanted, available_cpus())
    if count > 1 and data.config.input.cache == "decoded":
        splits = (data.train, data.evaluation)
        needed = sum(pixel_bytes(shards, data.config.transform) for shards in splits)
        available = available_memory()
        while count > 1 and not fits_in_memory(count * needed, available):
            count -= 1
        if count < min(wanted, available_cpus()):
            return count, f"each needs {gib(needed)} for pixels, of {gib(available)} of memory"
    return count, f"there are {available_cpus()} CPUs" if count < wanted else ""


def answer(receive: Receive, send: Send) -> None:
    """Train trials, in a process or on a worker of `SideBySide`."""
    # Only here, as these need TFX's libraries.
    from pipeline_def.training.preparation import Preparation, start_devices

    task = receive()
    config = from_dict(TrainerConfig, task["config"])
    strategy = start_devices(config)
    tf.constant(0)  # Starts the threads.
    for thread in os.listdir("/proc/self/task") if "cpus" in task else ():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), task["cpus"])
    prepared = Preparation.of(SimpleNamespace(**task["files"]), config, strategy)
    data = dataclasses.replace(prepared.data, config=config, kept={})
    runner = TrialRunner(data, prepared.build, strategy, *task["place"])
    while True:
        order = receive()
        trial = Trial(**order["trial"])
        attempt(runner, trial, order["rung"], deadline=time.perf_counter() + order["seconds"])
        send(dataclasses.asdict(trial))
