"""What a search tries: the space, what is next, and what is stopped early.

Optuna's TPE proposes trials (Bergstra et al., 2011), and its median rule stops those that are worse
than most. All trials are in a file beside the checkpoints, so that a killed search goes on.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optuna
import tensorflow as tf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

from components.contract.artifact_files import read_json
from components.contract.errors import ConfigurationError
from components.contract.rules_of_thumb import OWN_NETWORKS, SMALL_SIDE
from components.storage.folder import write_json
from components.trainer.config.recipes import RECIPES, Values, apply_values, get_value
from components.trainer.config.training import TrainerConfig
from components.tuner.trials import DIVERGED, DONE, STOPPED, Trial

# As in the text that a search prints itself.
optuna.logging.set_verbosity(optuna.logging.ERROR)

_TRIALS = "trials.json"
# Complete trials before any is stopped, and tenths of its epochs that each trial gets: until then,
# high learning rates look worse than they end.
_STARTUP, _WARMUP = 3, 3
_RANDOM_FIRST = 8
_TRIES = 30

_UNFREEZE = "transfer.unfreeze"
_FLIP = "augmentation.flip"
# Channels that `model.width` 0 stands for.
_WIDTHS = {"cnn": 32, "resnet9": 64}


def find_start(config: TrainerConfig, *, images: int) -> dict[str, Any]:
    """Return option → value where the first trial differs from the recipe's training.

    It trains ResNet-9 instead of a smaller network on small images, and has mirrored images,
    stronger augmentation and twice as many epochs. Options that the user has set stay. `config` is
    that of trial 0, `images` the number of training images.
    """
    start: dict[str, Any] = {}
    if config.model.name == "cnn" and (config.transform.size or 0) <= SMALL_SIDE:
        network = {"model.name": "resnet9", **RECIPES["cifar"](images)}
        # Its options only suit each other, and a width suits a network.
        free = len(list_free(config, network)) == len(network)
        if free and "model.width" not in config.training.fixed:
            start = network
    epochs = 2 * start.get("training.epochs", config.training.epochs)
    start |= {
        "training.epochs": epochs,
        "training.keep": "last",
        "augmentation.policy": "trivial",
        _FLIP: True,
    }
    return list_changes(config, list_free(config, start))


def list_free(config: TrainerConfig, values: Values) -> dict[str, Any]:
    """Return the values that `training.fixed` allows."""
    fixed = config.training.fixed
    return {
        k: value for k, value in values.items() if k not in fixed or get_value(config, k) == value
    }


def list_changes(config: TrainerConfig, values: Values) -> dict[str, Any]:
    """Return those of the values that differ from the configuration's."""
    return {key: value for key, value in values.items() if get_value(config, key) != value}


def find_space(plain: TrainerConfig, start: Values) -> dict[str, BaseDistribution]:
    """Return option → what to try, around the values of trial 1, which differs by `start`."""
    config = apply_values(plain, start)
    training, network = config.training, config.model.name
    decay, epochs, batch = training.weight_decay, training.epochs, training.batch_size
    # Tuned rates beat most specialized methods on few images.
    space = {"training.learning_rate": _around(training.learning_rate)}
    if decay:
        space["training.weight_decay"] = _around(decay)
    values: dict[str, Iterable[Any]] = {
        "training.batch_size": {max(1, batch // 2), batch},
        "augmentation.policy": {"none", "trivial", plain.augmentation.policy},
        _FLIP: {plain.augmentation.flip, config.augmentation.flip},
        # Stronger augmentation needs longer trainings.
        "training.epochs": {max(1, epochs // 2), epochs},
        "training.label_smoothing": {0.0, 0.1, training.label_smoothing},
    }
    if not config.model.build_fn:
        values["model.dropout"] = {0.0, 0.2, 0.5, config.model.dropout}
    if training.metric == "balanced_accuracy":
        values["training.balance"] = {"none", "weights", training.balance}
    if network in OWN_NETWORKS:
        # A narrower network trains longer in the same time.
        width = config.model.width or _WIDTHS[network]
        values["model.width"] = {max(1, width // 2), config.model.width}
    others = {key: [value] for key, value in start.items() if key not in {*values, *space}}
    if config.model.pretrained:
        # With 3,000 images of CIFAR-10, all layers were a point better than the last half of them.
        others[_UNFREEZE] = [*dict.fromkeys([config.transfer.unfreeze, "all"])]
    tried = {key: sorted(some) for key, some in values.items()} | others
    space |= {key: CategoricalDistribution([*some]) for key, some in tried.items()}
    return {key: choice for key, choice in space.items() if key not in plain.training.fixed}


def _around(value: float) -> BaseDistribution:
    """Return a range, from a third of the value to three times as much, in two digits."""
    low, high = (float(f"{value * factor:.2g}") for factor in (1 / 3, 3))
    return FloatDistribution(low, high, log=True)


class Study:
    """The trials of a search, those of earlier attempts included."""

    def __init__(
        self, config: TrainerConfig, space: dict[str, BaseDistribution], directory: str
    ) -> None:
        """Read the trials of an earlier attempt, if there are any.

        `config` is that of trial 0; `directory`, a path or URL, has the checkpoints of the search.
        """
        self._config, self.space = config, space
        self._path = os.path.join(directory, _TRIALS)
        pruner = optuna.pruners.MedianPruner(_STARTUP, _WARMUP)
        self._study = optuna.create_study(direction="maximize", pruner=pruner)
        self._current: optuna.Trial
        self._reported = 0
        self.trials: list[Trial] = []
        if tf.io.gfile.exists(self._path):
            for trial in [Trial(**facts) for facts in read_json(self._path)]:
                self._begin(trial)
                self._report(trial)
                self._tell(trial)

    def begin(self, trial: Trial) -> Trial:
        """Begin a given trial, or begin it again; it teaches the sampler if the space has it."""
        self._begin(trial)
        self._save()
        return trial

    def _begin(self, trial: Trial) -> None:
        self.trials[trial.number :] = [trial]
        params = {
            name: trial.values.get(name, get_value(self._config, name)) for name in self.space
        }
        fits = all(_contains(choice, params[name]) for name, choice in self.space.items())
        if fits:
            self._study.enqueue_trial(params)
        self._current = self._study.ask(self.space if fits else None)
        self._reported = 0

    def propose(self, *, accept: Callable[[dict[str, Any]], bool]) -> Trial | None:
        """Begin another trial, if one is found whose options are new, valid and accepted."""
        number, tried = len(self.trials), [trial.values for trial in self.trials]
        [seed] = np.random.SeedSequence([self._config.training.seed, number]).generate_state(1)
        self._study.sampler = optuna.samplers.TPESampler(
            seed=int(seed), n_startup_trials=_RANDOM_FIRST
        )
        for _ in range(_TRIES):
            drawn = self._study.ask(self.space)
            # It learns from the rounded values.
            self._study.tell(drawn, state=TrialState.FAIL)
            rounded = {
                name: float(f"{value:.2g}")
                if isinstance(self.space[name], FloatDistribution)
                else value
                for name, value in drawn.params.items()
            }
            values = list_changes(self._config, rounded)
            new = values and values not in tried
            if new and _is_valid(self._config, values) and accept(values):
                return self.begin(Trial(number, values))
        return None

    def report(self, trial: Trial) -> bool:
        """Record the scores of the trial in training; return whether it should stop."""
        if not self._report(trial):
            return False
        self._save()
        return not trial.role and self._current.should_prune()

    def _report(self, trial: Trial) -> bool:
        """Pass on new scores; return whether there are any."""
        first, self._reported = self._reported, len(trial.scores)
        for step in range(first, self._reported):
            self._current.report(trial.scores[step], step + 1)
        return self._reported > first

    def end(self, trial: Trial) -> None:
        """Record the end of the trial in training."""
        self._tell(trial)
        self._save()

    def _tell(self, trial: Trial) -> None:
        """End a trial for Optuna, which does not learn from what was killed or had no time."""
        if trial.state == DONE:
            self._study.tell(self._current, trial.score)
        else:
            lost = trial.state in (STOPPED, DIVERGED)
            self._study.tell(self._current, state=TrialState.PRUNED if lost else TrialState.FAIL)

    def _save(self) -> None:
        write_json(self._path, [dataclasses.asdict(trial) for trial in self.trials])


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
