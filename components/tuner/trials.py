"""A trial of a search: what is recorded of it, and its training."""

import dataclasses
import functools
import gc
import logging
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray

from components.contract.errors import ModelError
from components.host.progress import naming_fold
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import apply_values
from components.trainer.config.training import TrainerConfig
from components.trainer.loop.calibration import Predict, compile_logits, predict_logits
from components.trainer.loop.checkpoint import Progress
from components.trainer.loop.fold_images import SmallSet
from components.trainer.loop.folds import cross_validate
from components.trainer.loop.train import Mode, Shared, Training
from components.trainer.networks.layers import Dropout
from components.trainer.networks.networks import precision
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

UNFINISHED, DONE = "unfinished", "complete"
STOPPED, NO_TIME = "stopped early", "out of time"
DIVERGED, NO_MEMORY = "diverged", "out of memory"
# Parts of a trial after which it is compared with the others.
_TENTHS = 10
# Networks that are kept with their compiled steps.
_MOST_BUILT = 3
# Seconds between checkpoints: an epoch may take less than writing one.
_SAVE_AFTER = 30.0

Role = Literal["", "recipe", "longer"]
Build = Callable[[ModelConfig], tf_keras.Model]


@dataclass
class Trial:
    """A training of the search, and how far it has come."""

    number: int
    values: dict[str, Any]
    """Option → value where it differs from trial 0."""
    role: Role = ""
    """Why it is trained to its end, however it begins; empty for the others."""
    state: str = UNFINISHED
    epochs: int = 0
    """Completed epochs of the last phase; with folds, their mean."""
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    """Mean duration of its epochs but the first; 0 before the second."""
    score: float = 0.0
    """Accuracy on the images that select the epoch, so far; balanced accuracy if
    `training.metric` is."""
    scores: list[float] = field(default_factory=list)
    """Score after each tenth of its epochs."""
    right: list[str] = field(default_factory=list)
    """1 for each of these images that the trial recognizes, else 0; a text for each class if the
    score is balanced."""

    def go_on(self, score: float, done: int, *, total: int) -> None:
        """Set the score after `done` of all epochs or folds."""
        self.score = score
        self.scores += [score] * (_TENTHS * done // total - len(self.scores))

    def complete(self, right: list[str]) -> None:
        """Set the state of a trial that was trained to its end."""
        self.right, self.state = right, DONE
        self.score = statistics.mean(text.count("1") / len(text) for text in right)


Report = Callable[[Trial], bool]
"""Hears of a trial after each of its epochs or folds; returns whether to stop it."""


@dataclass(frozen=True)
class _Built:
    """A network, and what its trials have compiled and computed."""

    model: tf_keras.Model
    initial: list[NDArray[Any]]
    predict: Predict
    shared: Shared = field(default_factory=Shared)


@dataclass
class TrialRunner:
    """Trains trials, which share what they have compiled and computed."""

    data: TrainingInput
    """With the configuration of trial 0."""
    build: Build
    strategy: tf.distribute.Strategy
    folds: int
    """0: the eval split compares the trials."""
    log_dir: str
    directory: str
    built: dict[str, _Built] = field(default_factory=dict)
    """By the configuration of the network, the last used at the end."""

    def folder(self, trial: Trial) -> str:
        """Return the folder of the checkpoints of a trial."""
        return os.path.join(self.directory, f"trial-{trial.number}")

    def config(self, trial: Trial) -> TrainerConfig:
        """Return the configuration of a trial."""
        return apply_values(self.data.config, trial.values)

    def _build(self, config: TrainerConfig) -> _Built:
        """Return the network of a trial with its first weights."""
        model_config, is_ours = config.model, not config.model.build_fn
        if is_ours:
            # Dropout is a variable, and may be 0.
            model_config = dataclasses.replace(model_config, dropout=0.5)
        key = f"{config.training.precision} {model_config!r}"
        if not (built := self.built.pop(key, None)):
            for old in [*self.built][: 1 - _MOST_BUILT]:
                del self.built[old]
                gc.collect()
            with self.strategy.scope(), precision(config.training.precision):
                model = self.build(model_config)
            predict = compile_logits(model)
            built = _Built(model, model.get_weights(), predict)
        self.built[key] = built
        built.model.set_weights(built.initial)
        for layer in built.model.submodules:
            if is_ours and isinstance(layer, Dropout):
                layer.set_rate(config.model.dropout)
        return built

    def train(self, trial: Trial, report: Report, *, note: str = "") -> None:
        """Train a trial to its end, or until `report`, called after each epoch or fold, is true.

        The live line shows its number and `note`. Its state is as before if it was stopped.

        Raises:
            ModelError: it diverged.
        """
        config = self.config(trial)
        built = self._build(config)
        data = dataclasses.replace(self.data, config=config)
        data = data.of(data.train, data.evaluation, self.strategy.num_replicas_in_sync)
        logs = os.path.join(self.log_dir, "trials", str(trial.number))
        try:
            with naming_fold(f"trial {trial.number}{note}:"):
                if self.folds:
                    self._train_folds(trial, built, data, logs, report)
                else:
                    self._train_whole(trial, built, data, logs, report)
        except BaseException:
            # It may leave layers frozen, which changes the order of the weights.
            left = {
                key: other for key, other in self.built.items() if other.model is not built.model
            }
            self.built = left
            gc.collect()
            raise

    def _train_folds(
        self, trial: Trial, built: _Built, data: TrainingInput, logs: str, report: Report
    ) -> None:
        """Train one fold after the other; each is a part of the trial."""
        for count in range(1, self.folds + 1):
            validated = cross_validate(
                built.model,
                data,
                self._small,
                folds=self.folds,
                log_dir=logs,
                checkpoint_dir=self.folder(trial),
                shared=built.shared,
                most=count,
            )
            trial.epochs = data.config.training.epochs * count // self.folds
            if count == self.folds:
                trial.complete(self._find_right(validated.logits, validated.images.labels))
                return
            curve = validated.mean_curve(f"val_{self.measure}")
            trial.go_on(float(curve[validated.choose_epoch() - 1]), count, total=self.folds)
            if report(trial):
                return

    @functools.cached_property
    def _small(self) -> SmallSet:
        """All images, for the folds of each trial."""
        return SmallSet.read(self.data)

    def _train_whole(
        self, trial: Trial, built: _Built, data: TrainingInput, logs: str, report: Report
    ) -> None:
        def end_epoch(progress: Progress) -> bool:
            self._set_progress(trial, progress, data.config)
            return report(trial)

        training = Training(
            built.model,
            data,
            logs,
            self.folder(trial),
            mode=Mode(stop=end_epoch, save_after=_SAVE_AFTER),
            shared=built.shared,
        )
        training.run()
        self._set_progress(trial, training.phases[-1].progress, data.config)
        if not training.stopped:
            logits, ids = predict_logits(built.predict, data.read_evaluation())
            trial.complete(self._find_right(logits, ids))

    def _set_progress(self, trial: Trial, progress: Progress, config: TrainerConfig) -> None:
        """Set how far a trial has come; its score is 0 while all epochs have diverged."""
        trial.epochs = progress.epochs
        curve = progress.history[f"val_{self.measure}"]
        score = curve[progress.best_epoch - 1] if progress.best_epoch else 0.0
        trial.go_on(score, trial.epochs, total=config.training.epochs)

    @property
    def measure(self) -> Literal["accuracy", "balanced_accuracy"]:
        """What the score of a trial is."""
        balanced = self.data.config.training.metric == "balanced_accuracy"
        return "balanced_accuracy" if balanced else "accuracy"

    def _find_right(self, scores: NDArray[np.floating[Any]], ids: Any) -> list[str]:
        """Return `Trial.right` for scores, [images, classes], and label ids."""
        right = np.argmax(scores, axis=1) == np.asarray(ids)
        balanced = self.measure == "balanced_accuracy"
        groups = np.asarray(ids) if balanced else np.zeros(len(right), int)
        return [
            "".join(map(str, right[groups == group].astype(int).tolist()))
            for group in np.unique(groups)
        ]


def attempt(runner: TrialRunner, trial: Trial, report: Report, *, note: str = "") -> None:
    """Train a trial as `TrialRunner.train` does; its state says if it failed."""
    try:
        runner.train(trial, report, note=note)
    except ModelError as error:
        _LOGGER.warning("Trial %d: %s", trial.number, error)
        trial.state = DIVERGED
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        # TensorFlow has one class for both.
        if "No space left" in str(error):
            raise
        _LOGGER.warning("Trial %d needs more memory than there is.", trial.number)
        trial.state = NO_MEMORY
        runner.built.clear()
        gc.collect()
