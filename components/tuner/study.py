"""The trials of a search in Optuna's journal: what is tried next, and what is stopped early.

TPE proposes trials (Bergstra et al., 2011). A trial whose best score so far is below the median of
the complete ones after the same fraction of their epochs is stopped. The journal lies beside the
checkpoints, so that a killed search goes on with the trial that it was training.
"""

import dataclasses
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from optuna.trial import TrialState

from components.contract.errors import ConfigurationError
from components.trainer.config.recipes import Values, apply_values, get_value
from components.trainer.config.training import TrainerConfig
from components.tuner.space import Choices, list_changes
from components.tuner.trials import DIVERGED, DONE, STOPPED, Trial

# As in the text that a search prints itself.
optuna.logging.set_verbosity(optuna.logging.ERROR)

Space = Mapping[str, Choices]

_JOURNAL = "study.log"
_FACTS = "facts"
# Complete trials before any is stopped, and tenths of its epochs that each trial gets: until then,
# high learning rates look worse than they end.
_STARTUP, _WARMUP = 3, 3
_RANDOM_FIRST = 8
_TRIES = 30
# Below it, importance is noise; the number of resamples is enough for its standard error.
_FEWEST, _RESAMPLES, _TREES = 10, 20, 16
_STATES = {STOPPED: TrialState.PRUNED, DIVERGED: TrialState.PRUNED}


class Study:
    """The trials of a search, those of earlier attempts included."""

    def __init__(self, config: TrainerConfig, directory: str) -> None:
        """Open the journal of a search in the folder of its checkpoints, or begin one.

        Args:
            config: of trial 0.
            directory: path; in the place of a URL, the journal is temporary.
        """
        place = tempfile.mkdtemp() if "://" in directory else os.path.abspath(directory)
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, _JOURNAL)
        _cut_unfinished_line(path)
        self._config = config
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

    def begin(self, trial: Trial, space: Space) -> Trial:
        """Begin a given trial, or begin it again; it teaches the sampler if the space has it."""
        distributions = _distribute(space)
        params = _locate(self._config, trial, distributions)
        # The space of the others is only known after the recipe's training.
        if trial.role == "recipe" or not params:
            return self._begin(self._study.ask(), trial)
        self._study.enqueue_trial(params)
        return self._begin(self._study.ask(distributions), trial)

    def propose(
        self, space: Space, *, accept: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        """Return the options of another trial; None if none are new, valid and accepted.

        Args:
            space: what it may differ in.
            accept: whether options that were not tried yet will do.
        """
        number, tried = len(self.trials), [trial.values for trial in self.trials]
        [seed] = np.random.SeedSequence([self._config.training.seed, number]).generate_state(1)
        # With options on their own, as the recipe has no place in the space.
        self._study.sampler = optuna.samplers.TPESampler(
            seed=int(seed),
            n_startup_trials=_RANDOM_FIRST,
            multivariate=False,
            constant_liar=False,
        )
        distributions = _distribute(space)
        for _ in range(_TRIES):
            drawn = self._study.ask(distributions)
            # Only what is trained, rounded, teaches the sampler.
            self._study.tell(drawn, state=TrialState.FAIL)
            rounded = {
                name: float(f"{value:.2g}") if space[name].between else value
                for name, value in drawn.params.items()
            }
            values = list_changes(self._config, rounded)
            new = values and values not in tried
            if new and _is_valid(self._config, values) and accept(values):
                return values
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


def find_importance(
    config: TrainerConfig, space: Space, trials: Sequence[Trial]
) -> dict[str, list[float]]:
    """Return option → its share of the variance of early scores, and the standard error.

    Functional ANOVA over a random forest (Hutter et al., 2014), repeated on resampled trials. Empty
    with few trials. Options that had one value in all trials are left out.
    """
    distributions = _distribute(space)
    located = [
        (_locate(config, trial, distributions), trial.scores[_WARMUP - 1])
        for trial in trials
        if len(trial.scores) >= _WARMUP
    ]
    known = [
        optuna.create_trial(params=params, distributions=distributions, value=score)
        for params, score in located
        if params
    ]
    if len(known) < _FEWEST:
        return {}
    generator = np.random.default_rng(config.training.seed)
    shares: dict[str, list[float]] = {}
    for seed in range(_RESAMPLES):
        study = optuna.create_study(direction="maximize")
        study.add_trials([known[n] for n in generator.integers(len(known), size=len(known))])
        if len({trial.value for trial in study.trials}) < 2:
            continue
        evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=seed)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        for option in distributions:
            shares.setdefault(option, []).append(found.get(option, 0.0))
    return {
        option: [statistics.mean(values), statistics.stdev(values)]
        for option, values in sorted(shares.items(), key=lambda item: -statistics.mean(item[1]))
        if any(values)
    }


def _cut_unfinished_line(path: str) -> None:
    """Remove what a killed process wrote last, which Optuna refuses to read."""
    if os.path.exists(path):
        with open(path, "r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _distribute(space: Space) -> dict[str, BaseDistribution]:
    return {
        name: FloatDistribution(choices.values[0], choices.values[-1], log=True)
        if choices.between
        else CategoricalDistribution(list(choices.values))
        for name, choices in space.items()
    }


def _locate(
    config: TrainerConfig, trial: Trial, distributions: Mapping[str, BaseDistribution]
) -> dict[str, Any] | None:
    """Return option → value of a trial in a space; None if it lies outside."""
    params = {name: trial.values.get(name, get_value(config, name)) for name in distributions}
    for name, distribution in distributions.items():
        if isinstance(distribution, FloatDistribution):
            inside = distribution.low <= params[name] <= distribution.high
        else:
            inside = params[name] in distribution.choices  # type: ignore[attr-defined]
        if not inside:
            return None
    return params


def _is_valid(config: TrainerConfig, values: Values) -> bool:
    try:
        apply_values(config, values)
    except ConfigurationError:
        return False  # Such as weight decay for adam.
    return True
