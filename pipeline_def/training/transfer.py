"""The phases of a training: one from random weights; from pretrained ones the head, then the rest.

The first of two phases fits a new last layer to features that stay as they are. The second goes on
from there with the layers that `transfer.unfreeze` names; a random head would have spoiled them.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.configuration import to_dict
from components.contract.errors import ModelError
from components.contract.model_files import PHASE
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.model.layers import Dropout
from pipeline_def.model.parts import Parts, freeze, unfreeze_everything
from pipeline_def.training.feature_cache import FeatureCache
from pipeline_def.training.loop import ReadBatches, TrainingLoop
from pipeline_def.training.tensorboard.log import TrainingLog
from pipeline_def.training.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

TRAIN, HEAD, FINE_TUNE = "train", "head", "fine_tune"
"""Names of the phases, and of the folders of their checkpoints."""

# Of an epoch on cached features. Ten images of each of four classes are two batches, and sixty
# updates leave the head 15 points below scikit-learn's logistic regression; this many, within one.
_FEWEST_HEAD_STEPS = 64


@dataclass(frozen=True)
class Phase:
    """What came out of a phase."""

    name: str
    history: Mapping[str, Sequence[float]]
    """Metric → its value in every epoch."""
    metric: str
    """The one that chose the best epoch."""
    seconds: float
    """Time that it took; next to none if it was over before training was continued."""
    steps: int
    """Of an epoch."""

    @property
    def epochs(self) -> int:
        """How many there were."""
        return len(self.history[self.metric])

    @property
    def best(self) -> float:
        """Value of the metric in the best epoch."""
        finite = filter(math.isfinite, self.history[self.metric])
        return min(finite) if self.metric == "val_loss" else max(finite)

    def is_better_than(self, other: Phase) -> bool:
        """Whether its best epoch is better than that of `other`, not as good."""
        return self.best < other.best if self.metric == "val_loss" else self.best > other.best

    def describe(self) -> dict[str, Any]:
        """Return what `training.json` says of it."""
        names = ("name", "epochs", "seconds", "metric", "best")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class _Material:
    """What a phase trains, and on what: the whole model on images, or the head on features."""

    model: tf_keras.Model
    read: ReadBatches
    evaluation: Callable[[], tf.data.Dataset]
    augmentation: AugmentationConfig | None
    steps: int


@dataclass
class Training:
    """All phases of one training."""

    model: tf_keras.Model
    """From uint8 images to logits; left with the weights of the best epoch."""
    data: TrainingInput
    labels: Sequence[str]
    """Text of each class."""
    log_dir: str
    """Folder of the TensorBoard logs."""
    checkpoint_dir: str
    """Folder of checkpoints, in which each phase has its own; they stay."""
    phases: list[Phase] = field(default_factory=list)
    """Those that are over, in order."""
    exported: str = ""
    """Name of the phase whose weights the model has."""

    def run(self) -> None:
        """Train, from the latest checkpoint of the latest phase on.

        Raises:
            ModelError: the loss on the eval split was not a number in any epoch of a phase.
            ConfigurationError: the network has no head of its own, and starts from weights.
        """
        transfer = self.data.choices.transfer
        if self.data.choices.model.weights == "none":
            self._fit(TRAIN, self.data.choices.training)
            return
        if transfer.head_epochs:
            self._train_head()
        if transfer.unfreeze != "none":
            self._fine_tune()
        unfreeze_everything(self.model)

    @property
    def history(self) -> dict[str, list[float]]:
        """Metric → its value in every epoch of all phases; `phase` is the number of the phase."""
        found: dict[str, list[float]] = {}
        for number, phase in enumerate(self.phases, start=1):
            for name, values in {**phase.history, PHASE: [number] * phase.epochs}.items():
                found.setdefault(name, []).extend(values)
        return found

    def _train_head(self) -> None:
        """Train the last layer alone, on features that are computed once if that is asked for."""
        transfer = self.data.choices.transfer
        freeze(self.model, unfreeze="none", train_batch_norm=False)
        parts = Parts.of(self.model)
        # The loss of a single layer has one minimum. From zero it is reached with small weights,
        # which with few images are the better ones (up to a point of accuracy), as in BiT.
        for variable in parts.head.trainable_variables:
            variable.assign(tf.zeros_like(variable))
        cache = FeatureCache(parts.backbone, self.data)
        cached = transfer.cache_features and cache.fits
        if cached:
            _LOGGER.info(
                "The last layer is trained on features of images that are not augmented, computed "
                "once; with transfer.cache_features off it would see them augmented."
            )
        try:
            self._fit(HEAD, self._head_config(), self._features(parts, cache) if cached else None)
        except ModelError as error:
            raise ModelError(
                "The loss on the eval split was not a finite number in any epoch of the first "
                f"phase: lower transfer.head_learning_rate, which is "
                f"{transfer.head_learning_rate:g}."
            ) from error

    def _fine_tune(self) -> None:
        """Train what is unfrozen; keep the earlier weights if that makes nothing better."""
        choices, variables = self.data.choices, list(self.model.variables)
        earlier = [variable.numpy() for variable in variables]
        freeze(
            self.model,
            unfreeze=choices.transfer.unfreeze,
            train_batch_norm=choices.transfer.train_batch_norm,
        )
        self._fit(FINE_TUNE, choices.training)
        *before, last = self.phases
        if not before or last.is_better_than(before[0]):
            return
        for variable, value in zip(variables, earlier, strict=True):
            variable.assign(value)
        self.exported = HEAD
        _LOGGER.warning(
            "Fine-tuning has not made the model better (%s %.4f, %.4f before), so its weights are "
            "left aside: lower training.learning_rate, or set transfer.unfreeze to fewer blocks.",
            *(last.metric, last.best, before[0].best),
        )

    def _head_config(self) -> TrainingConfig:
        """Return the configuration of the first phase: a convex problem needs no recipe."""
        choices = self.data.choices
        return dataclasses.replace(
            choices.training,
            epochs=choices.transfer.head_epochs,
            learning_rate=choices.transfer.head_learning_rate,
            optimizer="adam",
            schedule="cosine",
            warmup_epochs=0.0,
            weight_decay=0.0,
            clip_norm=0.0,
            ema=0.0,
            profile_steps=0,
        )

    def _features(self, parts: Parts, cache: FeatureCache) -> _Material:
        # Of features that are always the same, dropout cost up to a point of accuracy.
        for layer in parts.head.layers:
            if isinstance(layer, Dropout):
                layer.trainable = False
        steps = max(self.data.steps, _FEWEST_HEAD_STEPS)
        return _Material(parts.head, cache.read, cache.read_evaluation, None, steps)

    def _images(self) -> _Material:
        data = self.data
        return _Material(self.model, data.read, data.read_evaluation, data.augmentation, data.steps)

    def _fit(self, name: str, config: TrainingConfig, material: _Material | None = None) -> None:
        """Run a phase; without `material`, of the whole model on images."""
        started = time.perf_counter()
        material = material or self._images()
        with self.model.distribute_strategy.scope():
            loop = TrainingLoop(
                material.model,
                config=config,
                augmentation=material.augmentation,
                batch_size=self.data.batch_size,
                steps=material.steps,
                class_weights=self.data.class_weights(len(self.labels)),
            )
        with self._log(loop) as log:
            history = loop.fit(
                material.read,
                material.evaluation,
                log=log,
                checkpoint_dir=os.path.join(self.checkpoint_dir, name),
            )
            seconds = time.perf_counter() - started
            metric = f"val_{config.metric}"
            phase = Phase(name, history, metric, seconds, material.steps)
            log.write_hyperparameters(to_dict(self.data.choices), {metric: phase.best})
        self.phases.append(phase)
        self.exported = name

    def _log(self, loop: TrainingLoop) -> TrainingLog:
        """Open the logs of a phase, which go on where those of the phase before have ended."""
        return TrainingLog(
            self.log_dir,
            profile=loop.profiled_steps,
            first_epoch=sum(phase.epochs for phase in self.phases),
            first_step=sum(phase.epochs * phase.steps for phase in self.phases),
            classes=self.labels,
        )
