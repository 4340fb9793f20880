"""What a search has time for, and when it has nothing to gain."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.contract.confidence import paired_difference
from components.contract.rules_of_thumb import OWN_NETWORKS
from pipeline_def.config.recipes import Values
from pipeline_def.config.training import TrainerConfig
from pipeline_def.training.distribution.process_apart import ProcessApart as Worker
from pipeline_def.training.search.space import Choices, find_space
from pipeline_def.training.search.trials import DONE, PAUSED, Trial, TrialRunner

# Trials without a better one, after which the search stops.
_PATIENCE = 25
_EPOCHS = "training.epochs"
# Trials whose checkpoints stay for an ensemble: more members make it slower, hardly better.
_MOST_MEMBERS = 4
# With less time than for so many trainings, the first trial gets all of it.
_ROOM = 4
# Few images need more epochs. With 500 images of CIFAR-10, 400 were four points better than 80, and
# 800 were no better.
_FEW_EPOCHS, _FEW_SEEN = 400, 200_000
# How much longer the best trial is trained at the end, and the least and most for which that is.
_LONGER, _LEAST_LONGER, _MOST_LONGER = 2.0, 1.5, 4
# The default of `Schedule.alone`: an upper bound for processes on one machine.
_ALONE = 1.3


@dataclass
class Schedule:
    """The trials of a search, and its time."""

    runner: TrialRunner
    seconds: float
    """Of the whole search."""
    start: Values = field(default_factory=dict)
    """Where the first trial differs from the recipe's training."""
    trials: list[Trial] = field(default_factory=list)
    resumed: set[int] = field(default_factory=set)
    """Trials of an earlier attempt."""
    interrupted: bool = False
    """Whether the user has ended it."""
    files: Mapping[str, Any] = field(default_factory=dict)
    """For processes and workers that train trials, as TFX has passed them."""
    side: int = 1
    """Trials that are trained at the same time, except those from start to end."""
    workers: Sequence[Worker] = ()
    """Other machines that train trials."""
    alone: float = _ALONE
    """How much longer a training takes alone than its share of the time side by side."""
    running: set[int] = field(default_factory=set)
    """Trials in other processes."""

    @property
    def plain(self) -> TrainerConfig:
        """The configuration of trial 0."""
        return self.runner.data.config

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - sum(trial.seconds for trial in self.trials)

    @property
    def overhead(self) -> float:
        """Fraction of the time so far that was not spent in epochs, such as for compiling."""
        first = self.trials[0].epoch_seconds
        epochs = sum(trial.epochs * (trial.epoch_seconds or first) for trial in self.trials)
        return max(0.0, 1 - epochs / (self.seconds - self.left))

    @property
    def can_gain(self) -> bool:
        """Whether a trial that makes no mistake would be better than the recipe beyond chance."""
        right = self.trials[0].right
        gain, error = compare(["1" * len(one) for one in right], right)
        return gain > error

    @property
    def stale(self) -> bool:
        """Whether the last trials have brought nothing."""
        some = [trial for trial in self.trials if trial.role != "longer"]
        complete = (trial for trial in some if trial.state == DONE)
        best = max(complete, key=lambda trial: (trial.score, -trial.number))
        return len(some) - best.number > _PATIENCE

    @property
    def space(self) -> dict[str, Choices]:
        """What the trials differ in."""
        return find_space(self.plain, self.start)

    def plan_only(self) -> dict[str, Any] | None:
        """Return the options of a single trial that fills a short time.

        The first epochs of trial 1 have shown its pace. None if several trials fit in the time.
        """
        others = self.trials[1:]
        started = len(others) == 1 and others[0].state == PAUSED and others[0].scores
        if not started or len(self._lengths) < 2:
            return None
        only, epochs = others[0], self.runner.config(others[0]).training.epochs
        few = self._few_epochs(only)
        most = self._count_epochs(only)
        if most >= _ROOM * max(epochs, few) or most < epochs / 2:
            return None
        return {**only.values, _EPOCHS: min(most, max(_ROOM * epochs, 2 * few))}

    def _few_epochs(self, trial: Trial) -> int:
        """Return the epochs from which few images gain; 0 with many, or first weights of others."""
        if self.runner.config(trial).model.name not in OWN_NETWORKS:
            return 0
        return min(_FEW_EPOCHS, _FEW_SEEN // self.runner.data.train.total)

    def _count_epochs(self, trial: Trial) -> int:
        """Return how many epochs the rest of the time allows a training like a trial."""
        pace = self._pace(trial, alone=True) * (1 + self._share_of_all)
        return int((self.left - self._start_up(trial)) / pace)

    def plan_longer(self) -> dict[str, Any] | None:
        """Return the options of the best trial with as many more epochs as the time allows."""
        best, done = self.find_best(0), any(one.role == "longer" for one in self.trials)
        if not best or done or not self.longer_seconds:
            return None
        epochs = self.runner.config(best).training.epochs
        most = min(self._count_epochs(best), _MOST_LONGER * epochs)
        if most < _LEAST_LONGER * epochs:
            return None
        return {**best.values, _EPOCHS: most}

    @property
    def longer_seconds(self) -> float:
        """Seconds to keep back for a longer training of the best trial; 0 if its length is set."""
        best = self.find_best(0)
        # First of all, one other trial should come to its end.
        if not best or not self.find_best() or len(self._lengths) < 2:
            return 0.0
        cost = _LONGER * self._pace(best, alone=True) * self.runner.config(best).training.epochs
        return min(cost + self._start_up(best), self.seconds / 3)

    @property
    def _lengths(self) -> Sequence[int]:
        return self.space[_EPOCHS].values

    def fits(self, trial: Trial, *, reserve: float = 0.0) -> bool:
        """Return whether the time is enough for all epochs of a trial."""
        whole = self.runner.config(trial).training.epochs
        seconds = self._start_up(trial) + self._pace(trial) * (whole - trial.epochs)
        afterwards = self._pace(trial) * whole * self._share_of_all
        return self.left >= self.side * seconds + afterwards + reserve

    @property
    def _share_of_all(self) -> float:
        """Ratio of Trainer's time on all images to the time of the folds; 0 without folds."""
        folds = self.runner.folds
        return 1 / (folds - 1) if folds else 0.0

    def _pace(self, trial: Trial, *, alone: bool = False) -> float:
        """Return the seconds of an epoch; a trial that has not started is like trial 0."""
        pace = trial.epoch_seconds or self.trials[0].epoch_seconds
        return pace * (self.alone if trial.shared and (alone or self.side == 1) else 1)

    def _start_up(self, trial: Trial) -> float:
        """Estimate the seconds before the next epoch of a trial."""
        return 0.0 if self.runner.is_compiled(trial) else self.trials[0].start_up

    def find_best(self, first: int = 1) -> Trial | None:
        """Return the best complete trial other than trial 0, or from number `first` on."""
        complete = (trial for trial in self.trials[first:] if trial.state == DONE)
        return max(complete, key=lambda trial: (trial.score, -trial.number), default=None)

    @property
    def finalists(self) -> list[Trial]:
        """The best complete trials, of which an ensemble may be made."""
        complete = [trial for trial in self.trials if trial.state == DONE]
        return sorted(complete, key=lambda trial: (-trial.score, trial.number))[:_MOST_MEMBERS]


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
