"""Search for a better training for `training.minutes`.

Trial 0 is the training that the recipe chooses, from start to end. The others differ in what
`space.py` lists; `study.py` proposes them, and says how far they run. At last the best one is
trained for longer. Only trials that were trained to the end can replace trial 0, and only if they
are more accurate on the images that select the epoch by more than one standard error of the paired
difference (the one-standard-error rule; Hastie et al., 2009). The test split is never read.
"""

import dataclasses
import gc
import json
import logging
import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import tensorflow as tf
import yaml

from components.contract.confidence import Z, paired_difference
from components.contract.errors import ModelError
from components.contract.model_files import BEST_FILE
from components.contract.progress import report_result
from pipeline_def.config.recipes import Values, nest_values
from pipeline_def.config.training import TrainerConfig
from pipeline_def.model.networks import precision
from pipeline_def.training.checkpoint import remove_checkpoints, write_whole
from pipeline_def.training.cross_validation.choice import choose_folds
from pipeline_def.training.distribution.workers import has_workers
from pipeline_def.training.search.space import find_space
from pipeline_def.training.search.study import (
    RUNGS,
    find_importance,
    is_advice,
    is_promising,
    propose,
)
from pipeline_def.training.search.trials import DONE, PAUSED, Build, Role, Trial, TrialRunner
from pipeline_def.training.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

_STATE = "trials.json"
_DIVERGED, _NO_MEMORY = "diverged", "out of memory"
_FAILURES = {_DIVERGED: "diverged", _NO_MEMORY: "ran out of memory"}

# Trials without a better one, after which the search stops.
_PATIENCE = 25
_EPOCHS = "training.epochs"
# How much longer the best trial is trained at the end, and the least and most for which that is.
_LONGER, _LEAST_LONGER, _MOST_LONGER = 2.0, 1.5, 4


@dataclass(frozen=True)
class Outcome:
    """What a search has found."""

    config: TrainerConfig
    """Of the chosen trial, without the search."""
    checkpoints: str
    """Folder of its checkpoints: a training from there is complete."""
    facts: dict[str, Any]
    """For `training.json`: the minutes, all trials, the one that was chosen and why, in `text`."""


@dataclass
class _Search:
    runner: TrialRunner
    seconds: float
    """Of the whole search."""
    trials: list[Trial] = field(default_factory=list)

    @classmethod
    def resume(cls, runner: TrialRunner, seconds: float) -> Self:
        """Start, or go on where an earlier attempt was interrupted."""
        search = cls(runner, seconds)
        path = search._path
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                search.trials = [Trial(**facts) for facts in json.loads(file.read())]
        return search

    @property
    def _path(self) -> str:
        return os.path.join(self.runner.directory, _STATE)

    @property
    def _plain(self) -> TrainerConfig:
        """The configuration of trial 0."""
        return self.runner.data.config

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - sum(trial.seconds for trial in self.trials)

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
        try:
            self._compare()
        except KeyboardInterrupt:
            report_result("search interrupted: the best so far is exported; Ctrl-C stops the run")

    @property
    def can_gain(self) -> bool:
        """Whether a trial that makes no mistake would be better than the recipe beyond chance."""
        right = self.trials[0].right
        gain, error = compare(["1" * len(one) for one in right], right)
        return gain > error

    def _compare(self) -> None:
        """Train the other trials, then one that is longer, then what the time completes."""
        while found := self._find_next():
            self.train(*found)
        self._complete_paused(most=1)
        if longer := self._plan_longer():
            self.train(self._add(longer, "longer"), 1.0)
        if not self.stale:
            self._complete_paused(most=len(self.trials))

    def _find_next(self) -> tuple[Trial, float] | None:
        """Return the trial to train and up to which rung; None if a new one has no time left."""
        paused = [trial for trial in self.trials if trial.state == PAUSED]
        # The best one of each rung: if it is not promising, the others are not.
        for rung in range(len(RUNGS) - 1, -1, -1):
            here = [trial for trial in paused if len(trial.scores) == rung]
            best = min(here, key=lambda one: (-one.score, one.number), default=None)
            if best and self._fits(best) and is_promising(best, self.trials):
                return best, 1.0 if best.role else RUNGS[rung]
        reserve = self._longer_seconds
        values = propose(
            self._plain,
            self.trials,
            accept=lambda one: not self.stale and self._fits(Trial(-1, one), reserve=reserve),
        )
        if values is None:
            return None
        self._add(values, "advice" if is_advice(self._plain, values) else "")
        return self._find_next()

    @property
    def stale(self) -> bool:
        """Whether the last trials have brought nothing."""
        some = [trial for trial in self.trials if trial.role != "longer"]
        complete = (trial for trial in some if trial.state == DONE)
        best = max(complete, key=lambda trial: (trial.score, -trial.number))
        return len(some) - best.number > _PATIENCE

    def _add(self, values: dict[str, Any], role: Role) -> Trial:
        """Add a trial, and record it: a killed search goes on with it."""
        self.trials.append(Trial(len(self.trials), values, role))
        self.save()
        return self.trials[-1]

    def _plan_longer(self) -> dict[str, Any] | None:
        """Return the options of the best trial with as many more epochs as the time allows."""
        best, done = self._find_best(0), any(one.role == "longer" for one in self.trials)
        if not best or done or not self._longer_seconds:
            return None
        epochs = self.runner.config(best).training.epochs
        left = self.left - self._start_up(best)
        most = min(int(left / self._pace(best)), _MOST_LONGER * epochs)
        if most < _LEAST_LONGER * epochs:
            return None
        return {**best.values, _EPOCHS: most}

    @property
    def _longer_seconds(self) -> float:
        """Seconds to keep back for a longer training of the best trial; 0 if its length is set."""
        best = self._find_best(0)
        # First of all, one other trial should come to its end.
        if not best or not self._find_best() or len(self._lengths) < 2:
            return 0.0
        cost = _LONGER * self._pace(best) * self.runner.config(best).training.epochs
        return min(cost + self._start_up(best), self.seconds / 3)

    @property
    def _lengths(self) -> Sequence[int]:
        return find_space(self._plain)[_EPOCHS].values

    def _complete_paused(self, *, most: int) -> None:
        """Complete the most accurate of the paused trials, as far as the time allows."""
        paused = [trial for trial in self.trials if trial.state == PAUSED]
        for trial in sorted(paused, key=lambda one: (-one.epochs, -one.score, one.number)):
            if most and self._fits(trial):
                self.train(trial, 1.0)
                most -= 1

    def _fits(self, trial: Trial, *, reserve: float = 0.0) -> bool:
        """Return whether the time is enough for all epochs of a trial."""
        epochs = self.runner.config(trial).training.epochs - trial.epochs
        return self.left >= self._start_up(trial) + self._pace(trial) * epochs + reserve

    def _pace(self, trial: Trial) -> float:
        """Return the seconds of an epoch; a trial that has not started is like trial 0."""
        return trial.epoch_seconds or self.trials[0].epoch_seconds

    def _start_up(self, trial: Trial) -> float:
        """Estimate the seconds before the next epoch of a trial."""
        return 0.0 if self.runner.is_compiled(trial) else self.trials[0].start_up

    def train(self, trial: Trial, rung: float) -> None:
        """Train a trial up to a rung, and record it."""
        started, best = time.perf_counter(), max(one.score for one in self.trials)
        note = f", best {best:.3f}, {max(self.left, 0) / 60:.0f} min left"
        try:
            self.runner.train(trial, rung, note=note)
        except ModelError as error:
            _LOGGER.warning("Trial %d: %s", trial.number, error)
            trial.state = _DIVERGED
        except (tf.errors.ResourceExhaustedError, MemoryError) as error:
            # TensorFlow has one class for both.
            if "No space left" in str(error):
                raise
            _LOGGER.warning("Trial %d needs more memory than there is.", trial.number)
            trial.state = _NO_MEMORY
            self.runner.built.clear()
        gc.collect()
        before, seconds = trial.seconds, time.perf_counter() - started
        trial.seconds += seconds
        trial.finished = self.seconds - self.left
        # A single epoch does not show how much of its time is start-up.
        rest = max(trial.seconds - self.trials[0].start_up, 0)
        trial.epoch_seconds = trial.epoch_seconds or rest / max(trial.epochs, 1)
        if not before:
            trial.start_up = max(seconds - trial.epoch_seconds * trial.epochs, 0)
        self.save()
        self._tidy()
        self._report(trial)

    def _report(self, trial: Trial) -> None:
        best = max(one.score for one in self.trials)
        tried = "".join(f", {key.partition('.')[2]} {one}" for key, one in trial.values.items())
        report_result(
            f"trial {trial.number} {trial.state} {trial.score:.3f}, best {best:.3f}, "
            f"{max(self.left, 0) / 60:.0f} min left{tried}"
        )

    def _tidy(self) -> None:
        """Remove the checkpoints that nothing can need any more."""
        best = self._find_best()
        for trial in self.trials[1:]:
            if trial.state != PAUSED and trial is not best:
                remove_checkpoints(self.runner.folder(trial))

    def _find_best(self, first: int = 1) -> Trial | None:
        """Return the best complete trial other than trial 0, or from number `first` on."""
        complete = (trial for trial in self.trials[first:] if trial.state == DONE)
        return max(complete, key=lambda trial: (trial.score, -trial.number), default=None)

    def choose(self) -> tuple[Trial, str]:
        """Return the trial to export, and why."""
        first, *others = (trial for trial in self.trials if trial.seconds)
        complete = [trial for trial in others if trial.state == DONE]
        spent = (self.seconds - self.left) / 60
        begin = (
            f"Searched for {spent:.0f} of {self.seconds / 60:.0f} minutes: {len(others)} "
            f"trial{'s' * (len(others) != 1)}, {len(complete)} trained to the end."
            f"{' It stopped early, as the last ones brought nothing.' * self.stale}"
        )
        if not self.can_gain:
            return first, (
                "No search: even a trial without a mistake on these images would not be better "
                "than the recipe's training beyond chance."
            )
        best = self._find_best()
        if others and not best:
            return first, f"{begin} The recipe stays."
        if not best:
            # One trial more takes about one and a half times as long.
            needed = math.ceil(2.5 * first.seconds / 60)
            return first, (
                f"training.minutes is {self.seconds / 60:g}, too few to train a single trial: the "
                f"recipe's training took {first.seconds / 60:.1f} minutes, so a search takes at "
                f"least {needed}."
            )
        gain, error = compare(best.right, first.right)
        where = "in cross-validation" if self.runner.folds else "on the eval split"
        names = ", ".join(f"{key} {value}" for key, value in best.values.items())
        told = f"{gain:+.3f} ± {Z * error:.3f} {where} with {names}"
        if gain > error:
            return best, f"{begin} Trial {best.number} is better than the recipe: {told}."
        return first, (
            f"{begin} None is better than the recipe by more than one standard error; the best: "
            f"{told}."
        )


def compare(one: list[str], other: list[str]) -> tuple[float, float]:
    """Return how much better `one` is than `other`, both `Trial.right`, and the standard error.

    >>> compare(["1111"], ["1100"])
    (0.3333, 0.3043)
    """
    differences, variances = [], []
    for first, second in zip(one, other, strict=True):
        pairs = [*zip(first, second, strict=True)]
        more, less = pairs.count(("1", "0")), pairs.count(("0", "1"))
        difference, error = paired_difference(more, less, len(pairs))
        differences.append(difference)
        variances.append(error**2)
    error = math.sqrt(sum(variances)) / len(variances)
    return round(statistics.mean(differences), 4), round(error, 4)


def search(
    data: TrainingInput,
    build: Build,
    strategy: tf.distribute.Strategy,
    *,
    minutes: float,
    log_dir: str,
    checkpoint_dir: str,
) -> Outcome:
    """Search for about `minutes`, at least until the recipe's training is complete.

    An interrupted search goes on where it was. The trials of the same seed are the same; how many
    of them there are depends on the speed of the machine.

    Raises:
        ModelError: the recipe's training fails, or no images compare the trials.
    """
    if has_workers(strategy):
        raise ModelError("training.minutes needs a single worker: remove it, or use one machine.")
    plain = data.config
    with strategy.scope(), precision(plain.training.precision):
        folds = choose_folds(data, build(plain.model))
    if not folds and not data.evaluation.total:
        raise ModelError(
            "training.minutes compares trainings on the eval split, which has no images: give it "
            "some, or remove training.minutes."
        )
    # Decided once: all trials are judged alike.
    fixed = _set_training(plain, find_learning_rate=False, folds=folds)
    data = dataclasses.replace(data, config=fixed, kept={})
    runner = TrialRunner(data, build, strategy, folds, log_dir, checkpoint_dir)
    run = _Search.resume(runner, minutes * 60)
    run.run()
    chosen, text = run.choose()
    report_result(text)
    for trial in run.trials:
        if trial is not chosen:
            remove_checkpoints(runner.folder(trial))
    _write_best(chosen.values, log_dir, text)
    facts = {
        "minutes": minutes,
        "folds": folds,
        "images": sum(map(len, run.trials[0].right)),
        "chosen": chosen.number,
        "text": text,
        "importance": find_importance(fixed, run.trials),
        "space": {key: dataclasses.asdict(one) for key, one in find_space(fixed).items()},
        "trials": [
            {name: value for name, value in dataclasses.asdict(trial).items() if name != "right"}
            for trial in run.trials
            if trial.seconds
        ],
    }
    config = _set_training(runner.config(chosen), minutes=None, search={})
    return Outcome(config, runner.folder(chosen), facts)


def _set_training(config: TrainerConfig, **fields: Any) -> TrainerConfig:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **fields))


def _write_best(values: Values, directory: str, text: str) -> None:
    """Write the options of the chosen trial as a configuration file."""
    tf.io.gfile.makedirs(directory)
    with tf.io.gfile.GFile(os.path.join(directory, BEST_FILE), "w") as file:
        file.write(f"# {text}\n{yaml.safe_dump(nest_values(values)) if values else ''}")
