"""What a search tries next, which trials continue, and which options mattered: Optuna's part.

TPE proposes trials (Bergstra et al., 2011), starting from the recipe. Asynchronous successive
halving (Li et al., 2020) promotes the best third of all trials that have reached a rung. Each
question builds a new study from the trials, so that an interrupted search gives the same answers.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import optuna

from components.contract.errors import ConfigurationError
from pipeline_def.config.recipes import Values, apply_values, get_value
from pipeline_def.config.training import TrainerConfig
from pipeline_def.training.search.space import Choices, find_space, list_changes

# As in the text that a search prints itself.
optuna.logging.set_verbosity(optuna.logging.ERROR)

# Fraction of its epochs after which a trial is compared with the others.
RUNGS = (1 / 9, 1 / 3, 1.0)
_KEPT = 3
_RANDOM_FIRST = 8
_TRIES = 30
# Below it, importance is noise; the number of resamples is enough for its standard error.
_FEWEST, _RESAMPLES, _TREES = 10, 20, 16


class Tried(Protocol):
    """What a study learns from a trial."""

    values: dict[str, Any]
    scores: list[float]


def epochs_at(rung: float, epochs: int) -> int:
    """Return the epochs of a trial at a rung, at least 1."""
    return max(1, round(rung * epochs))


def propose(
    config: TrainerConfig,
    start: Values,
    trials: Sequence[Tried],
    *,
    accept: Callable[[dict[str, Any]], bool],
) -> dict[str, Any] | None:
    """Return the options of another trial, as they differ from `config`; None if there is none.

    Args:
        config: of trial 0.
        start: of trial 1, around which the proposals lie.
        trials: so far, trial 0 first; the same ones lead to the same proposal.
        accept: whether options that were not tried yet will do.
    """
    space = find_space(config, start)
    distributions = {option: _distribution(choices) for option, choices in space.items()}
    tried = [trial.values for trial in trials]
    [seed] = np.random.SeedSequence([config.training.seed, len(trials)]).generate_state(1)
    sampler = optuna.samplers.TPESampler(
        seed=int(seed), multivariate=True, n_startup_trials=_RANDOM_FIRST
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in trials:
        _add(study, config, distributions, trial)
    for _ in range(_TRIES):
        drawn = study.ask(distributions).params
        rounded = {
            option: float(f"{one:.2g}") if space[option].between else one
            for option, one in drawn.items()
        }
        values = list_changes(config, rounded)
        if values and values not in tried and _is_valid(config, values) and accept(values):
            return values
    return None


def is_promising(trial: Tried, trials: Sequence[Tried]) -> bool:
    """Return whether a trial is among the best third of all at its rung."""
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=_KEPT)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for one in (*(other for other in trials if other is not trial), trial):
        asked, stopped = study.ask(), False
        for rung, score in enumerate(one.scores):
            asked.report(score, _KEPT**rung)
            stopped = asked.should_prune()
    return not stopped


def find_importance(
    config: TrainerConfig, start: Values, trials: Sequence[Tried]
) -> dict[str, list[float]]:
    """Return option → its share of the variance of the first scores, and the standard error.

    Functional ANOVA over a random forest (Hutter et al., 2014), repeated on resampled trials. Empty
    with few trials. Options that had one value in all trials are left out.
    """
    known = [trial for trial in trials if trial.scores]
    if len(known) < _FEWEST:
        return {}
    space = find_space(config, start)
    distributions = {option: _distribution(choices) for option, choices in space.items()}
    generator = np.random.default_rng(config.training.seed)
    shares: dict[str, list[float]] = {}
    for seed in range(_RESAMPLES):
        study = optuna.create_study(direction="maximize")
        for number in generator.integers(len(known), size=len(known)):
            _add(study, config, distributions, known[number], first=True)
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


def _add(
    study: optuna.Study,
    config: TrainerConfig,
    distributions: dict[str, Any],
    trial: Tried,
    *,
    first: bool = False,
) -> None:
    """Add a trial, unless it lies outside of the space, with its last score or the first."""
    values = {
        option: trial.values.get(option, get_value(config, option)) for option in distributions
    }
    if not all(_contains(distributions[option], value) for option, value in values.items()):
        return
    complete = first or len(trial.scores) == len(RUNGS)
    scores = trial.scores[:1] if first else trial.scores
    states = optuna.trial.TrialState
    study.add_trial(
        optuna.create_trial(
            params=values,
            distributions=distributions,
            state=states.COMPLETE if complete else states.PRUNED,
            value=scores[-1] if complete else None,
            intermediate_values={_KEPT**rung: score for rung, score in enumerate(scores)},
        )
    )


def _distribution(choices: Choices) -> optuna.distributions.BaseDistribution:
    values = choices.values
    if choices.between:
        return optuna.distributions.FloatDistribution(values[0], values[-1], log=True)
    return optuna.distributions.CategoricalDistribution(list(values))


def _contains(distribution: Any, value: Any) -> bool:
    if isinstance(distribution, optuna.distributions.FloatDistribution):
        return bool(distribution.low <= value <= distribution.high)
    return bool(value in distribution.choices)


def _is_valid(config: TrainerConfig, values: Values) -> bool:
    try:
        apply_values(config, values)
    except ConfigurationError:
        return False  # Such as weight decay for adam.
    return True
