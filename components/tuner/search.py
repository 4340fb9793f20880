"""Search for a better training within `training.minutes`.

Trial 0 is the recipe's training, run to its end. Trial 1 is what has helped most on other images.
The next ones change options around the recipe's; Optuna proposes them and stops those that are
worse than most (`study.py`). Finally, the best one is trained for longer. Only a trial that was
trained to its end can replace trial 0, and only if it is more accurate on the images that select
the epoch by more than chance gives the best of as many trials. The test split is never read.
"""

import dataclasses
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from components.contract.errors import ModelError
from components.contract.printable import format_duration
from components.host.progress import report_result
from components.storage.transfer import remove_folder
from components.trainer.config.recipes import Values, apply_values
from components.trainer.config.training import TrainerConfig
from components.trainer.training_input import TrainingInput
from components.tuner.choice import can_gain, choose, find_best, write_best
from components.tuner.study import Study, find_space, find_start
from components.tuner.trials import (
    DONE,
    NO_TIME,
    STOPPED,
    UNFINISHED,
    Build,
    Trial,
    TrialRunner,
    attempt,
)

_EPOCHS = "training.epochs"
# Fraction of its time by which a search may be late: an estimate that is a little short should not
# cost a trial its last epochs.
_GRACE = 0.1
# Epochs that show the pace of a trial: the first ones also compile.
_LEAST_EPOCHS = 4
# How much longer the best trial is trained at the end: the time that is kept for it, the least for
# which it pays, and the most. With 500 images of CIFAR-10, five times as many epochs were four
# points better, and ten times as many no better than that.
_LONGER, _LEAST_LONGER, _MOST_LONGER = 2.0, 1.5, 4.0


@dataclass
class Search:
    """Trains one trial after the other, as long as there is time."""

    runner: TrialRunner
    seconds: float
    """Of the whole search, with those of earlier attempts."""
    start: Values
    """Where trial 1 differs from the recipe's training."""
    study: Study = field(init=False)
    trials: list[Trial] = field(init=False)
    """All trials, the recipe's first."""

    def __post_init__(self) -> None:
        """Start, or go on where an earlier attempt was killed."""
        config = self.runner.data.config
        self.study = Study(config, find_space(config, self.start), self.runner.directory)
        self.trials = self.study.trials

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - sum(trial.seconds for trial in self.trials)

    def run(self) -> None:
        """Train the trials, from where they are.

        Raises:
            ModelError: the recipe's training fails.
        """
        if not self.trials or self.trials[0].state == UNFINISHED:
            self._train(self.study.begin((self.trials or [Trial(0, {}, "recipe")])[0]))
        recipe = self.trials[0]
        if recipe.state != DONE:
            raise ModelError(
                f"The recipe's training failed ({recipe.state}), so training.minutes has nothing "
                f"to improve: run without it to see why."
            )
        if not can_gain(recipe):
            return
        while trial := self._begin_next():
            self._train(trial)

    def _begin_next(self) -> Trial | None:
        """Begin the next trial; return None if there is nothing to gain or no time left."""
        number, last = len(self.trials), self.trials[-1]
        if last.state == UNFINISHED:  # An earlier attempt was killed.
            return self.study.begin(last)
        if number == 1 and self.start and self.left >= self.trials[0].seconds:
            return self.study.begin(Trial(1, {**self.start}))
        longer = self._plan_longer()
        if proposed := self._propose(longer):
            return proposed
        return self.study.begin(Trial(number, longer, "longer")) if longer else None

    def _propose(self, longer: Values | None) -> Trial | None:
        """Begin a proposed trial; return None if there is no time for one."""
        lengths: Any = self.study.space.get(_EPOCHS)
        kept = self._cost(self._best, _LONGER * self._epochs(self._best)) if longer else 0.0
        shortest = self._cost(Trial(-1, {**self.start}), lengths and min(lengths.choices))
        left = self.left - kept
        if shortest > left:
            return None
        return self.study.propose(accept=lambda values: self._cost(Trial(-1, values)) <= left)

    @property
    def _best(self) -> Trial:
        """The most accurate trial so far; the recipe's is complete."""
        return find_best(self.trials) or self.trials[0]

    def _plan_longer(self) -> dict[str, Any] | None:
        """Return the options of a longer training that takes the rest of the time, if it pays.

        It is like the best trial, or like trial 1 if that had not enough time.
        """
        late = len(self.trials) == 2 and self.trials[1].state == NO_TIME
        base, least = (self.trials[1], 0.5) if late else (self._best, _LEAST_LONGER)
        done = any(trial.role == "longer" for trial in self.trials)
        lengths = self.study.space.get(_EPOCHS)
        if done or not lengths or lengths.single():  # Its length may be the user's.
            return None
        before = self._epochs(base)
        epochs = self.left / self._cost(base, 1)
        if epochs < least * before:
            return None
        return {**base.values, _EPOCHS: int(min(epochs, _MOST_LONGER * before))}

    def _cost(self, trial: Trial, epochs: float | None = None) -> float:
        """Estimate the seconds of a training with the options of a trial.

        Those of Trainer on all images are among them if folds compare the trials.
        """
        recipe, *others = self.trials
        known = [other.epoch_seconds for other in others if other.epoch_seconds]
        # A single epoch does not show how much of its time is start-up.
        first = recipe.epoch_seconds or recipe.seconds / max(recipe.epochs, 1)
        pace = trial.epoch_seconds or (statistics.median(known) if known else first)
        epochs = self._epochs(trial) if epochs is None else epochs
        return pace * epochs * (1 + self._share_of_all)

    def _epochs(self, trial: Trial) -> int:
        return self.runner.config(trial).training.epochs

    @property
    def _share_of_all(self) -> float:
        """Ratio of Trainer's time on all images to the time of the folds; 0 without folds."""
        folds = self.runner.folds
        return 1 / (folds - 1) if folds else 0.0

    def _train(self, trial: Trial) -> None:
        """Train a trial until it is complete, worse than most, or out of time."""
        before, started = trial.seconds, time.perf_counter()
        first: tuple[int, float] | None = None

        def set_seconds() -> None:
            trial.seconds = before + time.perf_counter() - started

        def report(trial: Trial) -> bool:
            nonlocal first
            set_seconds()
            # The first epoch also compiles.
            first = first or (trial.epochs, trial.seconds)
            if trial.epochs > first[0]:
                trial.epoch_seconds = (trial.seconds - first[1]) / (trial.epochs - first[0])
            if self.study.report(trial):
                trial.state = STOPPED
            elif trial.role != "recipe" and self._is_late(trial):
                trial.state = NO_TIME
            return trial.state != UNFINISHED

        until = time.strftime("%H:%M", time.localtime(time.time() + max(self.left, 0)))
        attempt(self.runner, trial, report, note=f", {self._score}until {until}")
        set_seconds()
        self.study.end(trial)
        best = find_best(self.trials[1:])
        for other in self.trials[1:]:
            if other is not best:
                remove_folder(self.runner.folder(other))
        tried = "".join(f", {key.partition('.')[2]} {value}" for key, value in trial.values.items())
        left = f"{format_duration(max(self.left, 0))} left"
        result = f"trial {trial.number} {trial.state} {trial.score:.3f}, {self._score}{left}"
        report_result(result + tried)

    def _is_late(self, trial: Trial) -> bool:
        """Return whether the time is not enough for the rest of a trial."""
        left, whole = self.left + _GRACE * self.seconds, self._epochs(trial)
        rest = whole - trial.epochs + whole * self._share_of_all
        known = trial.epochs >= _LEAST_EPOCHS
        return left < 0 or (known and trial.epoch_seconds * rest > left)

    @property
    def _score(self) -> str:
        """The best score of a complete trial, if there is one."""
        best = find_best(self.trials)
        return f"best {best.score:.3f}, " if best else ""


def search(
    data: TrainingInput,
    build: Build,
    strategy: tf.distribute.Strategy,
    *,
    folds: int,
    log_dir: str,
    checkpoint_dir: str,
) -> tuple[TrainerConfig, str, dict[str, Any]]:
    """Search for about `training.minutes`, at least until the recipe's training is complete.

    A killed search goes on where it was. The trials of the same seed are the same; how many of them
    there are depends on the speed of the machine.

    Returns:
        The configuration of the chosen trial, without the search; the folder of its checkpoints,
        from which a training is complete; and for `training.json` the minutes, all trials, the one
        that was chosen and why, in `text`.

    Raises:
        ModelError: the recipe's training fails, or no images compare the trials.
    """
    plain = data.config
    if not folds and not data.evaluation.total:
        raise ModelError(
            "training.minutes compares trainings on the eval split, which has no images: give it "
            "some, or remove training.minutes."
        )
    # All trials are judged alike.
    fixed = apply_values(plain, {"training.folds": folds})
    data = dataclasses.replace(data, config=fixed)
    runner = TrialRunner(data, build, strategy, folds, log_dir, checkpoint_dir)
    start = find_start(fixed, images=data.train.total)
    run = Search(runner, 60 * (plain.training.minutes or 0), start)
    run.run()
    chosen, text = choose(run.trials, seconds=run.seconds, folds=folds)
    report_result(text)
    write_best(plain, chosen.values, folds=folds, directory=log_dir, text=text)
    config = runner.config(chosen)
    training = dataclasses.replace(config.training, minutes=None, fixed=[])
    config = dataclasses.replace(config, training=training)
    facts = {
        "minutes": plain.training.minutes,
        "folds": folds,
        "text": text,
        "measure": runner.measure,
        "chosen": chosen.number,
        "options": sorted(run.study.space),
        "trials": [
            {name: value for name, value in dataclasses.asdict(trial).items() if name != "right"}
            for trial in run.trials
            if trial.seconds
        ],
    }
    return config, runner.folder(chosen), facts
