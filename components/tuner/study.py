"""What a search tries, in Optuna's journal: the space, what is next, and what is stopped early.

TPE proposes trials (Bergstra et al., 2011), and the median rule stops those that are worse than
most. The journal lies beside the checkpoints, so that a killed search goes on.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from optuna.trial import TrialState

from components.contract.errors import ConfigurationError
from components.contract.rules_of_thumb import OWN_NETWORKS, SMALL_SIDE
from components.trainer.config.recipes import RECIPES, Values, apply_values, get_value
from components.trainer.config.training import TrainerConfig
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

UNFREEZE = "transfer.unfreeze"
_FLIP = "augmentation.flip"
# Channels that `model.width` 0 stands for.
_WIDTHS = {"cnn": 32, "resnet9": 64}


def find_start(config: TrainerConfig, *, images: int, bfloat16: bool) -> dict[str, Any]:
    """Return option → value where the first trial differs from the recipe's training.

    It trains ResNet-9 instead of a smaller network on small images, and has mirrored images,
    stronger augmentation and twice as many epochs. Options that the user has set stay.

    Args:
        config: of trial 0.
        images: number of training images.
        bfloat16: whether this machine computes in it faster than in float32.
    """
    own = config.model.name in OWN_NETWORKS and not config.model.build_fn
    small = own and (config.transform.size or 0) <= SMALL_SIDE
    start: dict[str, Any] = {}
    if small and config.model.name != "resnet9":
        network = {"model.name": "resnet9", **RECIPES["cifar"](images)}
        # Its options only suit each other, and a width suits a network.
        free = len(list_free(config, network)) == len(network)
        if free and "model.width" not in config.training.search:
            start = network
    epochs = 2 * start.get("training.epochs", config.training.epochs)
    start |= {
        "training.epochs": epochs,
        "training.keep": "last",
        "augmentation.policy": "trivial",
        _FLIP: True,
    }
    if own and bfloat16:
        start["training.precision"] = "bfloat16"
    return list_changes(config, list_free(config, start))


def list_free(config: TrainerConfig, values: Values) -> dict[str, Any]:
    """Return the values that `training.search` allows."""
    allowed = config.training.search
    return {key: one for key, one in values.items() if one in allowed.get(key, [one])}


def list_changes(config: TrainerConfig, values: Values) -> dict[str, Any]:
    """Return those of the values that differ from the configuration's."""
    return {key: value for key, value in values.items() if get_value(config, key) != value}


def find_space(plain: TrainerConfig, start: Values) -> dict[str, BaseDistribution]:
    """Return option → what to try.

    `training.search` replaces the values of an option, or adds one.

    Args:
        plain: configuration of trial 0.
        start: where trial 1 differs. The values lie around its own.
    """
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
        "augmentation.cutmix": {0.0, 1.0, config.augmentation.cutmix},
        "training.label_smoothing": {0.0, 0.1, training.label_smoothing},
    }
    if config.model.pretrained:
        # Mixed images need the whole network in every epoch.
        del values["augmentation.cutmix"]
    if not config.model.build_fn:
        values["model.dropout"] = {0.0, 0.2, 0.5, config.model.dropout}
    if training.metric == "balanced_accuracy":
        values["training.balance"] = {"none", "weights", training.balance}
    if network in OWN_NETWORKS:
        # A narrower network trains longer in the same time.
        width = config.model.width or _WIDTHS[network]
        values["model.width"] = {max(1, width // 2), config.model.width}
    fixed = {key: [value] for key, value in start.items() if key not in {*values, *space}}
    if config.model.pretrained:
        # With 3,000 images of CIFAR-10, all layers were a point better than half of them.
        fixed[UNFREEZE] = [*dict.fromkeys([config.transfer.unfreeze, "all"])]
    tried = {key: sorted(some) for key, some in values.items()}
    tried |= {**fixed, **plain.training.search}
    return space | {key: CategoricalDistribution([*some]) for key, some in tried.items()}


def _around(value: float) -> BaseDistribution:
    """Return a range, from a third of the value to three times as much, in two digits."""
    low, high = (float(f"{value * factor:.2g}") for factor in (1 / 3, 3))
    return FloatDistribution(low, high, log=True)


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
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path))),
            study_name="search",
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(_STARTUP, _WARMUP),
            load_if_exists=True,
        )
        self._current: optuna.Trial
        self._reported = 0
        self.trials: list[Trial] = []
        for recorded in self._study.get_trials(deepcopy=False):
            if facts := recorded.user_attrs.get(_FACTS):
                self._add(Trial(**facts))
            if recorded.state == TrialState.RUNNING:
                self._tell(recorded.number, self.trials[-1] if facts else None)

    def _add(self, trial: Trial) -> None:
        """Add a trial; another attempt replaces the one that was killed."""
        self.trials[trial.number :] = [trial]

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
        self._add(trial)
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
            lost = trial and trial.state in (STOPPED, DIVERGED)
            self._study.tell(current, state=TrialState.PRUNED if lost else TrialState.FAIL)


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
