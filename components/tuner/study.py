"""The trials of a search in Optuna's journal: what is tried next, and what is stopped early.

TPE proposes trials (Bergstra et al., 2011), and the median rule stops those that are worse than
most. The journal lies beside the checkpoints, so that a killed search goes on.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from optuna.trial import TrialState

from components.contract.errors import ConfigurationError
from components.trainer.config.recipes import Values, apply_values, get_value
from components.trainer.config.training import TrainerConfig
from components.tuner.space import list_changes
from components.tuner.trials import DIVERGED, DONE, STOPPED, Trial

# As in the text that a search prints itself.
optuna.logging.set_verbosity(optuna.logging.ERROR)

_JOURNAL = "study.log"
_FACTS = "facts"
# Complete trials before any is stopped, and tenths of its epochs that each trial gets: until then,
# high learning rates look worse than they end.
_STARTUP, _WARMUP = 3, 3
_RANDOM_FIRST = 8
_TRIES = 30
_STATES = {STOPPED: TrialState.PRUNED, DIVERGED: TrialState.PRUNED}


class Study:
    """The trials of a search, those of earlier attempts included."""

    def __init__(
        self, config: TrainerConfig, space: dict[str, BaseDistribution], directory: str
    ) -> None:
        """Open the journal of a search in the folder of its checkpoints, or begin one.

        Args:
            config: of trial 0.
            space: what the others may differ in.
            directory: path; in the place of a URL, the journal is temporary.
        """
        place = tempfile.mkdtemp() if "://" in directory else os.path.abspath(directory)
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, _JOURNAL)
        _cut_unfinished_line(path)
        self._config, self.space = config, space
        self._ranges = {name for name in space if isinstance(space[name], FloatDistribution)}
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path))),
            study_name="search",
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(_STARTUP, _WARMUP),
            load_if_exists=True,
        )
        self._current: optuna.Trial
        self._reported = 0
        trials: dict[int, Trial] = {}
        for recorded in self._study.get_trials(deepcopy=False):
            trial = None
            if facts := recorded.user_attrs.get(_FACTS):
                # A later attempt at a trial replaces a killed one.
                trial = trials[facts["number"]] = Trial(**facts)
            if recorded.state == TrialState.RUNNING:
                self._tell(recorded.number, trial)
        self.trials = [trials[number] for number in sorted(trials)]

    def begin(self, trial: Trial) -> Trial:
        """Begin a given trial, or begin it again; it teaches the sampler if the space has it."""
        params = {
            name: trial.values.get(name, get_value(self._config, name)) for name in self.space
        }
        if not all(_contains(one, params[name]) for name, one in self.space.items()):
            return self._begin(self._study.ask(), trial)
        self._study.enqueue_trial(params)
        return self._begin(self._study.ask(self.space), trial)

    def propose(self, *, accept: Callable[[dict[str, Any]], bool]) -> Trial | None:
        """Begin another trial, if one is found whose options are new, valid and accepted."""
        number, tried = len(self.trials), [trial.values for trial in self.trials]
        [seed] = np.random.SeedSequence([self._config.training.seed, number]).generate_state(1)
        self._study.sampler = optuna.samplers.TPESampler(
            seed=int(seed), n_startup_trials=_RANDOM_FIRST
        )
        for _ in range(_TRIES):
            drawn = self._study.ask(self.space)
            rounded = {
                name: float(f"{value:.2g}")
                if isinstance(self.space[name], FloatDistribution)
                else value
                for name, value in drawn.params.items()
            }
            values = list_changes(self._config, rounded)
            new = values and values not in tried
            if new and _is_valid(self._config, values) and accept(values):
                return self._begin(drawn, Trial(number, values))
            self._study.tell(drawn, state=TrialState.FAIL)
        return None

    def _begin(self, current: optuna.Trial, trial: Trial) -> Trial:
        self._current, self._reported = current, 0
        self.trials[trial.number :] = [trial]
        self._save(trial)
        return trial

    def _save(self, trial: Trial) -> None:
        self._current.set_user_attr(_FACTS, dataclasses.asdict(trial))

    def report(self, trial: Trial) -> bool:
        """Record the scores of the trial in training; return whether it should stop."""
        if len(trial.scores) == self._reported:
            return False
        for step in range(self._reported, len(trial.scores)):
            self._current.report(trial.scores[step], step + 1)
        self._reported = len(trial.scores)
        self._save(trial)
        return not trial.role and self._current.should_prune()

    def end(self, trial: Trial) -> None:
        """Record the end of the trial in training."""
        self._save(trial)
        self._tell(self._current, trial)

    def _tell(self, current: optuna.Trial | int, trial: Trial | None) -> None:
        """End a trial for Optuna, which does not learn from what was killed or had no time."""
        if trial and trial.state == DONE:
            self._study.tell(current, trial.score)
        else:
            state = _STATES.get(trial.state, TrialState.FAIL) if trial else TrialState.FAIL
            self._study.tell(current, state=state)


def _cut_unfinished_line(path: str) -> None:
    """Remove what a killed process wrote last, which Optuna refuses to read."""
    if os.path.exists(path):
        with open(path, "r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _contains(distribution: BaseDistribution, value: Any) -> bool:
    if isinstance(distribution, FloatDistribution):
        return bool(distribution.low <= value <= distribution.high)
    assert isinstance(distribution, CategoricalDistribution)
    return value in distribution.choices


def _is_valid(config: TrainerConfig, values: Values) -> bool:
    try:
        apply_values(config, values)
    except ConfigurationError:
        return False  # Such as weight decay for adam.
    return True
