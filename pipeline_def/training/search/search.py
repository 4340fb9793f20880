"""Search for a better training within `training.minutes`.

Trial 0 is the recipe's training, run to its end. The other trials change options that `space.py`
lists; `study.py` proposes them and decides how far each one runs. Finally, the best one is trained
for longer. Only a trial that was trained to its end can replace trial 0, and only if it is more
accurate on the images that select the epoch by more than one standard error of the paired
difference (the one-standard-error rule; Hastie et al., 2009). The test split is never read.
"""

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import tensorflow as tf

from components.contract.errors import ModelError
from components.contract.printable import format_duration
from components.host.machine import computes_bfloat16
from components.host.progress import report_progress, report_result
from components.host.stopping import first_interrupt_raises
from pipeline_def.config.recipes import Values
from pipeline_def.config.training import TrainerConfig
from pipeline_def.model.networks import precision
from pipeline_def.training.checkpoint import remove_checkpoints, write_whole
from pipeline_def.training.cross_validation.choice import choose_folds
from pipeline_def.training.distribution.strategy import is_accelerated
from pipeline_def.training.search.choice import choose, write_best
from pipeline_def.training.search.ensemble import find_ensemble
from pipeline_def.training.search.schedule import Schedule
from pipeline_def.training.search.side_by_side import SideBySide, count_processes
from pipeline_def.training.search.space import FLIP, find_start
from pipeline_def.training.search.study import (
    RUNGS,
    find_importance,
    is_promising,
    propose,
)
from pipeline_def.training.search.trials import (
    DIVERGED,
    DONE,
    NO_MEMORY,
    PAUSED,
    Build,
    Role,
    Trial,
    TrialRunner,
    attempt,
)
from pipeline_def.training.search.workers import Worker
from pipeline_def.training.training_input import TrainingInput

_STATE = "trials.json"
# Fraction of its time by which a search may be late: an estimate that is a little short should not
# cost a trial its last epochs.
_GRACE = 0.1
# A network that has not seen mirror images recognizes mirrored objects nearly as often, and about
# half of mirrored letters and digits.
_LEAST_MIRRORED = 0.75
_FAILURES = {DIVERGED: "diverged", NO_MEMORY: "ran out of memory"}


@dataclass(frozen=True)
class Outcome:
    """What a search has found."""

    config: TrainerConfig
    """Of the chosen trial, without the search."""
    checkpoints: str
    """Folder of its checkpoints: a training from there is complete."""
    members: dict[int, str]
    """Trial → folder of its checkpoints, for the others of an ensemble that is better."""
    facts: dict[str, Any]
    """For `training.json`: the minutes, all trials, the one that was chosen and why, in `text`."""


class _Search(Schedule):
    """Trains the trials, and records them."""

    @classmethod
    def resume(cls, runner: TrialRunner, seconds: float, start: Values) -> Self:
        """Start, or go on where an earlier attempt was interrupted."""
        search = cls(runner, seconds, start)
        path = search._path
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                search.trials = [Trial(**facts) for facts in json.loads(file.read())]
            search.resumed = {trial.number for trial in search.trials}
        return search

    @property
    def _path(self) -> str:
        return os.path.join(self.runner.directory, _STATE)

    def save(self) -> None:
        """Record the trials for a later attempt."""
        text = json.dumps([dataclasses.asdict(trial) for trial in self.trials])
        write_whole(self._path, text.encode())

    def run(self) -> None:
        """Train the trials, from where they are."""
        if not self.trials:
            self.trials.append(Trial(0, {}, "recipe"))
        first = self.trials[0]
        if first.state == PAUSED:
            self.train(first, 1.0)
        if first.state != DONE:
            raise ModelError(
                f"The recipe's training {_FAILURES[first.state]}, so training.minutes has nothing "
                f"to improve: run without it to see why."
            )
        if not self.can_gain:
            return
        if first.mirrored < _LEAST_MIRRORED and FLIP not in self.plain.training.search:
            report_result(
                f"mirror images are recognized {first.mirrored:.0%} as often, so no trial mirrors"
            )
            self.start = {key: one for key, one in self.start.items() if key != FLIP}
        try:
            with first_interrupt_raises():
                self._compare()
        except KeyboardInterrupt:
            self.interrupted = True
            report_result("search interrupted: the best so far is exported; Ctrl-C stops the run")

    def _compare(self) -> None:
        """Train the other trials, then one that is longer, then what the time completes."""
        self._train_found()
        self._complete_paused(most=1)
        if longer := self.plan_longer():
            self.train(self._add(longer, "longer"), 1.0)
        if not self.stale:
            self._complete_paused(most=len(self.trials))

    def _train_found(self) -> None:
        """Train one trial after the other, or several side by side."""
        others = SideBySide(self.runner, self.files, self.side, self.workers)
        with contextlib.closing(others):
            while True:
                found = self._find_next() if others.has_room() else None
                # A training from start to end gets all CPUs.
                if found and self.side > 1 and not found[0].role:
                    trial, rung = found
                    others.start(trial, rung, seconds=self._patience)
                    self.running.add(trial.number)
                elif self.running:
                    self._receive(others)
                elif found:
                    self.train(*found)
                else:
                    self.side = 1
                    return

    def _receive(self, others: SideBySide) -> None:
        """Wait for a trial to pause or end, and record it."""
        while (ended := others.wait(1.0)) == []:
            names = " and ".join(f"trial {number}" for number in sorted(self.running))
            done, total = (self.seconds - self.left) / 60, self.seconds / 60
            note = f"{names}, {self._state}"
            report_progress(done=min(done, total), total=total, unit="minutes", note=note)
        for trial, before in ended or ():
            self.running.remove(trial.number)
            self._record(trial, before)
        if ended is None:
            others.close()
            self.side, self.running = 1, set()
            report_result("the process of a trial has failed: from now on, one at a time")

    def _find_next(self) -> tuple[Trial, float] | None:
        """Return the trial to train and up to which rung; None if a new one has no time left."""
        first = self.trials[0]
        if len(self.trials) == 1 and self.start and self.left >= first.seconds / 3:
            return self._add({**self.start}, "advice"), RUNGS[0]
        if only := self.plan_only():
            return self._add(only, "longer"), 1.0
        paused = [
            trial
            for trial in self.trials
            if trial.state == PAUSED and trial.number not in self.running
        ]
        if self.left > 0 and (longer := [one for one in paused if one.role == "longer"]):
            return longer[0], 1.0
        # The best one of each rung: if it is not promising, the others are not.
        for rung in range(len(RUNGS) - 1, -1, -1):
            here = [trial for trial in paused if len(trial.scores) == rung]
            best = min(here, key=lambda one: (-one.score, one.number), default=None)
            if best and self.fits(best) and is_promising(best, self.trials):
                return best, 1.0 if best.role and best.scores else RUNGS[rung]
        reserve = self.longer_seconds
        values = propose(
            self.plain,
            self.start,
            self.trials,
            accept=lambda one: not self.stale and self.fits(Trial(-1, one), reserve=reserve),
        )
        if values is None:
            return None
        self._add(values)
        return self._find_next()

    def _add(self, values: dict[str, Any], role: Role = "") -> Trial:
        """Add a trial, and record it: a killed search goes on with it."""
        self.trials.append(Trial(len(self.trials), values, role))
        self.save()
        return self.trials[-1]

    def _complete_paused(self, *, most: int) -> None:
        """Complete the most accurate of the paused trials, as far as the time allows."""
        paused = [trial for trial in self.trials if trial.state == PAUSED]
        for trial in sorted(paused, key=lambda one: (-one.epochs, -one.score, one.number)):
            if most and self.fits(trial):
                self.train(trial, 1.0)
                most -= 1

    def train(self, trial: Trial, rung: float) -> None:
        """Train a trial up to a rung, and record it."""
        started, before = time.perf_counter(), trial.seconds
        # Nobody knows the pace of another network before its first epochs.
        deadline = started + self._patience if trial.number else math.inf
        attempt(self.runner, trial, rung, note=f", {self._state}", deadline=deadline)
        trial.seconds = before + time.perf_counter() - started
        self._record(trial, before)

    @property
    def _patience(self) -> float:
        """Seconds after which a training must pause."""
        return self.left + _GRACE * self.seconds

    def _record(self, trial: Trial, before: float) -> None:
        """Record how far a trial has come; `before` is its time until this run, in seconds."""
        if trial.number in self.resumed:
            # The checkpoint of a killed attempt has epochs whose time was never recorded.
            trial.seconds = max(trial.seconds, trial.epochs * trial.epoch_seconds)
        trial.finished = self.seconds - self.left
        # A single epoch does not show how much of its time is start-up.
        rest = max(trial.seconds - self.trials[0].start_up, 0)
        trial.epoch_seconds = trial.epoch_seconds or rest / max(trial.epochs, 1)
        if not before:
            trial.start_up = max(trial.seconds - trial.epoch_seconds * trial.epochs, 0)
        self.save()
        self._tidy()
        self._report(trial)

    @property
    def _state(self) -> str:
        """The best score of a complete trial, if there is one, and the time left."""
        scores = [one.score for one in self.trials if one.state == DONE]
        best = f"best {max(scores):.3f}, " if scores else ""
        return f"{best}{format_duration(max(self.left, 0))} left"

    def _report(self, trial: Trial) -> None:
        tried = "".join(f", {key.partition('.')[2]} {one}" for key, one in trial.values.items())
        report_result(f"trial {trial.number} {trial.state} {trial.score:.3f}, {self._state}{tried}")

    def _tidy(self) -> None:
        """Remove the checkpoints that nothing can need any more."""
        kept = self.finalists
        for trial in self.trials[1:]:
            if trial.state != PAUSED and trial not in kept:
                remove_checkpoints(self.runner.folder(trial))


def search(
    data: TrainingInput,
    build: Build,
    strategy: tf.distribute.Strategy,
    *,
    minutes: float,
    log_dir: str,
    checkpoint_dir: str,
    files: Mapping[str, Any] | None = None,
    workers: Sequence[Worker] = (),
) -> Outcome:
    """Search for about `minutes`, at least until the recipe's training is complete.

    An interrupted search goes on where it was. The trials of the same seed are the same; how many
    of them there are depends on the speed of the machine. With `files`, what TFX has passed,
    `training.parallel_trials` run at the same time, and one on each of the `workers`.

    Raises:
        ModelError: the recipe's training fails, or no images compare the trials.
    """
    plain = data.config
    with strategy.scope(), precision(plain.training.precision):
        folds = choose_folds(data, build(plain.model))
    if not folds and not data.evaluation.total:
        raise ModelError(
            "training.minutes compares trainings on the eval split, which has no images: give it "
            "some, or remove training.minutes."
        )
    # Decided once: all trials are judged alike.
    fixed = _set_training(plain, folds=folds)
    data = dataclasses.replace(data, config=fixed, kept={})
    runner = TrialRunner(data, build, strategy, folds, log_dir, checkpoint_dir)
    faster = not is_accelerated(strategy) and computes_bfloat16()
    start = find_start(fixed, images=data.train.total, bfloat16=faster)
    run = _Search.resume(runner, minutes * 60, start)
    if files:
        here, why = count_processes(runner)
        if why:
            report_result(f"{here} trials at the same time on this machine, as {why}")
        if workers and is_accelerated(strategy):
            # Another process could not use the accelerator of this one.
            here = 0
        run.files, run.workers, run.side = files, workers, here + len(workers)
        if workers:
            run.alone = run.side
    run.run()
    chosen, text = choose(run)
    report_result(text)
    ensemble = find_ensemble(run, chosen)
    if ensemble:
        report_result(ensemble["text"])
    write_best(plain, chosen.values, folds=folds, directory=log_dir, text=text)
    facts = {
        "minutes": minutes,
        "folds": folds,
        "overhead": run.overhead,
        "measure": runner.measure,
        "error": chosen.error,
        "chosen": chosen.number,
        "text": text,
        "ensemble": ensemble,
        "importance": find_importance(fixed, run.start, run.trials),
        "space": {key: dataclasses.asdict(one) for key, one in run.space.items()},
        "trials": [
            {name: value for name, value in dataclasses.asdict(trial).items() if name != "right"}
            for trial in run.trials
            if trial.seconds
        ],
    }
    config = _set_training(runner.config(chosen), minutes=None, search={})
    others = ensemble["members"][1:] if ensemble and ensemble["better"] else ()
    members = {one["trial"]: runner.folder(run.trials[one["trial"]]) for one in others}
    return Outcome(config, runner.folder(chosen), members, facts)


def _set_training(config: TrainerConfig, **fields: Any) -> TrainerConfig:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **fields))
