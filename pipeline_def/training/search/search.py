"""Search for a better training for `training.minutes`.

Trial 0 is the training that the recipe chooses, from start to end. The others differ in what
`space.py` lists, and run as far as `halving.py` says. Only trials that were trained to the end can
replace trial 0, and only if they are more accurate on the images that select the epoch by more than
one standard error of the paired difference (the one-standard-error rule; Hastie et al., 2009). The
test split is never read.
"""

import dataclasses
import gc
import json
import logging
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tf_keras
import yaml
from numpy.typing import NDArray

from components.contract.errors import ModelError
from components.contract.model_files import BEST_FILE
from components.contract.paired import Z, paired_difference
from components.contract.progress import naming_fold, report_result
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.recipes import Values, apply_values, nest_values
from pipeline_def.config.training import TrainerConfig
from pipeline_def.model.networks import precision
from pipeline_def.serving.signatures import Classifier
from pipeline_def.training.calibration import predict_logits
from pipeline_def.training.checkpoint import remove_checkpoints, write_whole
from pipeline_def.training.cross_validation.choice import choose_folds
from pipeline_def.training.cross_validation.folds import cross_validate
from pipeline_def.training.cross_validation.images import SmallSet
from pipeline_def.training.distribution.workers import has_workers
from pipeline_def.training.phases import Training
from pipeline_def.training.search.halving import (
    LONGER,
    RUNGS,
    count_promoted,
    count_trials,
    epochs_at,
)
from pipeline_def.training.search.space import draw_trials, find_space, list_changes
from pipeline_def.training.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

_STATE = "trials.json"
# Of a trial: paused trials go on if they are promoted.
_PAUSED, _DONE, _DIVERGED, _NO_MEMORY = "paused", "complete", "diverged", "out of memory"
_FAILURES = {_DIVERGED: "diverged", _NO_MEMORY: "ran out of memory"}

Build = Callable[[ModelConfig], tf_keras.Model]


@dataclass
class Trial:
    """A training of the search, and how far it has come."""

    number: int
    values: dict[str, Any]
    """Option → value where it differs from trial 0."""
    state: str = _PAUSED
    epochs: int = 0
    """Completed epochs of the last phase."""
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    """Duration of an epoch of the last phase."""
    start_up: float = 0.0
    """Seconds of its first run that these epochs did not take."""
    earlier_phases: float = 0.0
    """Of them, what a run that resumes does not repeat."""
    score: float = 0.0
    """Accuracy on the images that select the epoch, so far; balanced accuracy if
    `training.metric` is."""
    finished: float = 0.0
    """Seconds of the search at the end of its last run."""
    right: list[str] = field(default_factory=list)
    """1 for each of these images that the trial recognizes, else 0; a text for each class if the
    score is balanced."""

    @property
    def again(self) -> float:
        """Seconds of `start_up` that every run takes."""
        return max(self.start_up - self.earlier_phases, 0.0)


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
    data: TrainingInput
    """With the configuration of trial 0."""
    build: Build
    strategy: tf.distribute.Strategy
    seconds: float
    """Of the whole search."""
    folds: int
    """0: the eval split compares the trials."""
    log_dir: str
    directory: str
    trials: list[Trial] = field(default_factory=list)

    @classmethod
    def resume(cls, *fields: Any) -> Self:
        """Start, or go on where an earlier attempt was interrupted."""
        search = cls(*fields)
        path = os.path.join(search.directory, _STATE)
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                search.trials = [Trial(**facts) for facts in json.loads(file.read())]
        return search

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - sum(trial.seconds for trial in self.trials)

    def folder(self, trial: Trial) -> str:
        """Return the folder of the checkpoints of a trial."""
        return os.path.join(self.directory, f"trial-{trial.number}")

    def config(self, trial: Trial) -> TrainerConfig:
        """Return the configuration of a trial."""
        return apply_values(self.data.config, trial.values)

    def save(self) -> None:
        """Record the trials for a later attempt."""
        text = json.dumps([dataclasses.asdict(trial) for trial in self.trials])
        write_whole(os.path.join(self.directory, _STATE), text.encode())

    def run(self) -> None:
        """Train the trials, from where they are."""
        if not self.trials:
            self.trials.append(Trial(0, {}))
        first = self.trials[0]
        if first.state == _PAUSED:
            self.train(first, 1.0)
        if first.state != _DONE:
            raise ModelError(
                f"The recipe's training {_FAILURES[first.state]}, so training.minutes has nothing "
                f"to improve: run without it to see why."
            )
        if first.score >= 1:
            return
        try:
            self._compare()
        except KeyboardInterrupt:
            report_result("search interrupted: the best so far is exported; Ctrl-C stops the run")

    def _compare(self) -> None:
        """Train the other trials."""
        first = self.trials[0]
        rungs = (1.0,) if self.folds else RUNGS
        if len(self.trials) == 1:
            count = count_trials(self.left, one=first.seconds, start_up=first.again, rungs=rungs)
            drawn = draw_trials(self.data.config, count)
            changes = [list_changes(self.data.config, values) for values in drawn]
            self.trials += [Trial(number, one) for number, one in enumerate(changes, start=1)]
            self.save()
        running = self.trials[1:]
        for rung in rungs:
            for trial in running:
                self.advance(trial, rung)
            ranked = sorted(
                (one for one in running if one.seconds and one.state in (_PAUSED, _DONE)),
                key=lambda one: (-one.score, one.number),
            )
            running = ranked[: count_promoted(len(ranked))]
        # What is left of the time completes others.
        for trial in sorted(self.trials, key=lambda one: (-one.epochs, -one.score, one.number)):
            self.advance(trial, 1.0)

    def advance(self, trial: Trial, rung: float) -> None:
        """Train a trial up to a rung, if it has not come so far and the time allows it."""
        wanted = epochs_at(rung, self.config(trial).training.epochs)
        if trial.state != _PAUSED or trial.epochs >= wanted:
            return
        # One of the trials must come to its end, or all of them are in vain.
        reserve = 0.0 if rung == 1 else LONGER * self.trials[0].seconds
        if self.left >= self._estimate(trial, wanted) + reserve:
            self.train(trial, rung)

    def _estimate(self, trial: Trial, epochs: int) -> float:
        """Estimate the seconds until a trial has so many epochs."""
        first = self.trials[0]
        # A trial that has not started yet is assumed to be as fast as trial 0.
        pace = trial.epoch_seconds or first.epoch_seconds
        start_up = first.again if trial.epochs else first.start_up
        return start_up + pace * (epochs - trial.epochs)

    def train(self, trial: Trial, rung: float) -> None:
        """Train a trial up to a rung, and record it."""
        started = time.perf_counter()
        try:
            self._train(trial, rung)
        except ModelError as error:
            _LOGGER.warning("Trial %d: %s", trial.number, error)
            trial.state = _DIVERGED
        except (tf.errors.ResourceExhaustedError, MemoryError):
            _LOGGER.warning("Trial %d needs more memory than there is.", trial.number)
            trial.state = _NO_MEMORY
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
        best = max(one.score for one in self.trials)
        report_result(
            f"trial {trial.number} {trial.state} {trial.score:.3f}, best {best:.3f}, "
            f"{max(self.left, 0) / 60:.0f} min left"
        )

    def _tidy(self) -> None:
        """Remove the checkpoints that nothing can need any more."""
        best = self._find_best()
        for trial in self.trials[1:]:
            if trial.state != _PAUSED and trial is not best:
                remove_checkpoints(self.folder(trial))

    def _find_best(self) -> Trial | None:
        """Return the best complete trial other than trial 0."""
        complete = (trial for trial in self.trials[1:] if trial.state == _DONE)
        return max(complete, key=lambda trial: (trial.score, -trial.number), default=None)

    def _train(self, trial: Trial, rung: float) -> None:
        config = self.config(trial)
        replicas = self.strategy.num_replicas_in_sync
        data = dataclasses.replace(self.data, config=config)
        data = data.of(data.train, data.evaluation, replicas)
        with self.strategy.scope(), precision(config.training.precision):
            model = self.build(config.model)
        logs = os.path.join(self.log_dir, "trials", str(trial.number))
        if self.folds:
            with naming_fold(f"trial {trial.number}"):
                validated = cross_validate(
                    model,
                    data,
                    SmallSet.read(data),
                    folds=self.folds,
                    log_dir=logs,
                    checkpoint_dir=self.folder(trial),
                )
            self._complete(trial, validated.logits, validated.images.labels)
            trial.epochs = config.training.epochs
            return
        pause = epochs_at(rung, config.training.epochs) if rung < 1 else 0
        training = Training(model, data, logs, self.folder(trial), pause=pause)
        with naming_fold(f"trial {trial.number}"):
            training.run()
        *earlier, last = training.phases
        trial.epochs = last.progress.epochs
        trial.epoch_seconds = last.epoch_seconds or trial.epoch_seconds
        trial.earlier_phases = max(trial.earlier_phases, sum(phase.seconds for phase in earlier))
        logits, ids = predict_logits(Classifier(model, config.model.views), data.read_evaluation())
        self._complete(trial, logits, ids)
        if training.paused:
            trial.state = _PAUSED

    def _complete(self, trial: Trial, logits: NDArray[np.float32], ids: Any) -> None:
        right = np.argmax(logits, axis=1) == np.asarray(ids)
        balanced = self.data.config.training.metric == "balanced_accuracy"
        groups = np.asarray(ids) if balanced else np.zeros(len(right), int)
        trial.right = [
            "".join(map(str, right[groups == group].astype(int).tolist()))
            for group in np.unique(groups)
        ]
        trial.score = statistics.mean(one.count("1") / len(one) for one in trial.right)
        trial.state = _DONE

    def choose(self) -> tuple[Trial, str]:
        """Return the trial to export, and why."""
        first, *others = (trial for trial in self.trials if trial.seconds)
        complete = [trial for trial in others if trial.state == _DONE]
        spent = (self.seconds - self.left) / 60
        begin = (
            f"Searched for {spent:.0f} of {self.seconds / 60:.0f} minutes: {len(others)} trials, "
            f"{len(complete)} trained to the end."
        )
        if first.score >= 1:
            return first, "The recipe's training makes no mistake on these images: no search."
        best = self._find_best()
        if not best:
            # One trial more takes about one and a half times as long.
            needed = math.ceil(2.5 * first.seconds / 60)
            return first, (
                f"training.minutes is {self.seconds / 60:g}, too few to train a single trial: the "
                f"recipe's training took {first.seconds / 60:.1f} minutes, so a search takes at "
                f"least {needed}."
            )
        gain, error = compare(best.right, first.right)
        where = "in cross-validation" if self.folds else "on the eval split"
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
    data = dataclasses.replace(data, config=fixed)
    run = _Search.resume(data, build, strategy, minutes * 60, folds, log_dir, checkpoint_dir)
    run.run()
    chosen, text = run.choose()
    report_result(text)
    _write_best(chosen.values, log_dir, text)
    facts = {
        "minutes": minutes,
        "folds": folds,
        "images": sum(map(len, run.trials[0].right)),
        "chosen": chosen.number,
        "text": text,
        "space": {key: dataclasses.asdict(one) for key, one in find_space(fixed).items()},
        "trials": [
            {name: value for name, value in dataclasses.asdict(trial).items() if name != "right"}
            for trial in run.trials
            if trial.seconds
        ],
    }
    config = _set_training(run.config(chosen), minutes=None, search={})
    return Outcome(config, run.folder(chosen), facts)


def _set_training(config: TrainerConfig, **fields: Any) -> TrainerConfig:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **fields))


def _write_best(values: Values, directory: str, text: str) -> None:
    """Write the options of the chosen trial as a configuration file."""
    tf.io.gfile.makedirs(directory)
    with tf.io.gfile.GFile(os.path.join(directory, BEST_FILE), "w") as file:
        file.write(f"# {text}\n{yaml.safe_dump(nest_values(values)) if values else ''}")
