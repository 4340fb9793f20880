"""The phases of a training: one from random weights; from pretrained ones the head, then the rest.

The first of two phases fits a new last layer to fixed features. The second fine-tunes the layers
that `transfer.unfreeze` selects, which a random head would have spoiled.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
import tf_keras

from components.contract.errors import ModelError
from components.contract.model_files import PHASE
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.model.layers import Dropout
from pipeline_def.model.parts import Parts, freeze, unfreeze_everything
from pipeline_def.training.checkpoint import remove_checkpoints
from pipeline_def.training.distribution.workers import is_chief
from pipeline_def.training.feature_cache import FeatureCache
from pipeline_def.training.log import TrainingLog
from pipeline_def.training.loop import ReadBatches, TrainingLoop
from pipeline_def.training.steps.step import Step
from pipeline_def.training.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Names of the phases, and of the folders of their checkpoints.
_TRAIN, _HEAD, _FINE_TUNE = "train", "head", "fine_tune"

# Per epoch on cached features. Ten images of each of four classes are two batches, and sixty
# updates leave the head 15 points below scikit-learn's logistic regression; these, within one.
_MIN_HEAD_STEPS = 64


@dataclass(frozen=True)
class Phase:
    """A completed phase."""

    name: str
    history: Mapping[str, Sequence[float]]
    """Metric → its value in every epoch."""
    metric: str
    """The metric that chose the best epoch."""
    best_epoch: int
    """From 1 on; 0 if the loss was not finite in any epoch."""
    seconds: float
    """Duration; next to none if a resumed training found the phase completed."""
    steps: int
    """Steps per epoch."""
    diverged: bool = False
    """Whether it stopped early because the network no longer computed finite numbers."""
    on_features: bool = False
    """Whether it trained on features in memory instead of images."""

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(self.history[self.metric])

    @property
    def best(self) -> float:
        """Value of the metric in the best epoch; NaN, which is never better, without one."""
        return self.history[self.metric][self.best_epoch - 1] if self.best_epoch else float("nan")

    def is_better_than(self, other: Phase) -> bool:
        """Return whether the best epoch is strictly better than that of `other`, which has one."""
        return self.best < other.best if self.metric == "val_loss" else self.best > other.best


@dataclass(frozen=True)
class _Task:
    """The model of a phase with its data: the whole model on images, or the head on features."""

    model: tf_keras.Model
    read: ReadBatches
    evaluation: Callable[[], tf.data.Dataset]
    augmentation: AugmentationConfig | None
    steps: int


@dataclass
class Training:
    """All phases of one training."""

    model: tf_keras.Model
    """From uint8 images to logits; ends with the weights of the best epoch."""
    data: TrainingInput
    log_dir: str
    """Folder of the TensorBoard logs."""
    checkpoint_dir: str
    """Folder of checkpoints, with a folder for each phase; they stay."""
    phases: list[Phase] = field(default_factory=list)
    """Completed phases, in order."""
    exported: str = ""
    """Name of the phase whose weights the model has."""

    def run(self) -> None:
        """Train, from the latest checkpoint of the latest phase on.

        Raises:
            ModelError: training diverged before the loss on the eval split was finite.
            ConfigurationError: the network has no separate head, but starts from weights.
        """
        transfer = self.data.config.transfer
        if self.data.config.model.weights == "none":
            self._fit(_TRAIN, self.data.config.training)
            return
        if transfer.head_epochs:
            self._train_head()
        if transfer.unfreeze != "none":
            self._fine_tune()
        unfreeze_everything(self.model)

    @property
    def history(self) -> dict[str, list[float]]:
        """Metric → its value in every epoch of all phases; `phase` is the number of the phase."""
        merged: dict[str, list[float]] = {}
        for number, phase in enumerate(self.phases, start=1):
            for name, values in {**phase.history, PHASE: [number] * phase.epochs}.items():
                merged.setdefault(name, []).extend(values)
        return merged

    def _train_head(self) -> None:
        """Train the last layer alone, on cached features if `transfer.cache_features` is on."""
        transfer = self.data.config.transfer
        freeze(self.model, unfreeze="none", train_batch_norm=False)
        parts = Parts.of(self.model)
        # The loss of a single layer has one minimum. From zero, training reaches it with small
        # weights, which are up to a point more accurate with few images, as in BiT.
        for variable in parts.head.trainable_variables:
            variable.assign(tf.zeros_like(variable))
        cache = FeatureCache(parts.backbone, self.data)
        cached = transfer.cache_features and cache.fits
        if cached:
            _LOGGER.info(
                "The last layer is trained on features that are computed once, from images without "
                "augmentation; set transfer.cache_features to false to train it with augmentation."
            )
        task = self._on_features(parts, cache) if cached else None
        self._fit(_HEAD, self._head_config(), task)

    def _fine_tune(self) -> None:
        """Train the unfrozen layers, but keep the earlier weights if they were better."""
        config, variables = self.data.config, list(self.model.variables)
        earlier = [variable.numpy() for variable in variables]
        freeze(
            self.model,
            unfreeze=config.transfer.unfreeze,
            train_batch_norm=config.transfer.train_batch_norm,
        )
        self._fit(_FINE_TUNE, config.training)
        *before, last = self.phases
        if not before or last.is_better_than(before[0]):
            return
        for variable, value in zip(variables, earlier, strict=True):
            variable.assign(value)
        self.exported = _HEAD
        if last.best_epoch:
            _LOGGER.warning(
                "Fine-tuning has not improved the model (%s %.4f, before %.4f), so its weights are "
                "discarded: lower training.learning_rate, or unfreeze fewer blocks with "
                "transfer.unfreeze.",
                *(last.metric, last.best, before[0].best),
            )

    def _head_config(self) -> TrainingConfig:
        """Return the configuration of the first phase: a convex problem needs no recipe."""
        config = self.data.config
        return dataclasses.replace(
            config.training,
            epochs=config.transfer.head_epochs,
            learning_rate=config.transfer.head_learning_rate,
            optimizer="adam",
            schedule="cosine",
            warmup_epochs=0.0,
            weight_decay=0.0,
            clip_norm=0.0,
            ema=0.0,
            profile_steps=0,
        )

    def _on_features(self, parts: Parts, cache: FeatureCache) -> _Task:
        # On features that never change, dropout cost up to a point of accuracy.
        for layer in parts.head.layers:
            if isinstance(layer, Dropout):
                layer.trainable = False
        steps = max(self.data.steps, _MIN_HEAD_STEPS)
        return _Task(parts.head, cache.read, cache.read_evaluation, None, steps)

    def _on_images(self) -> _Task:
        data = self.data
        return _Task(self.model, data.read, data.read_evaluation, data.augmentation, data.steps)

    def _fit(self, name: str, config: TrainingConfig, task: _Task | None = None) -> None:
        """Run a phase, by default of the whole model on images.

        Raises:
            ModelError: it diverged, and neither it nor an earlier phase has weights to keep.
        """
        on_features, directory = bool(task), os.path.join(self.checkpoint_dir, name)
        started = time.perf_counter()
        task = task or self._on_images()
        with self.model.distribute_strategy.scope():
            step = Step(
                task.model,
                config=config,
                augmentation=task.augmentation,
                batch_size=self.data.batch_size,
                steps=task.steps,
                class_weights=self.data.class_weights(self.model.output_shape[-1]),
            )
            loop = TrainingLoop(step)
        with self._open_log(loop) as log:
            done = loop.fit(task.read, task.evaluation, log=log, checkpoint_dir=directory)
        if done.diverged or not done.best_epoch:
            problem = _describe_divergence(name, config, epoch=done.epochs)
            if not done.best_epoch and not self.phases:
                if is_chief(self.model.distribute_strategy):
                    remove_checkpoints(directory)
                raise ModelError(problem)
            _LOGGER.warning("%s The best epoch before is kept.", problem)
        self.phases.append(
            Phase(
                name,
                history=done.history,
                metric=done.watched,
                best_epoch=done.best_epoch,
                seconds=time.perf_counter() - started,
                steps=task.steps,
                diverged=done.diverged,
                on_features=on_features,
            )
        )
        self.exported = name

    def _open_log(self, loop: TrainingLoop) -> TrainingLog:
        """Open the logs of a phase, which continue those of the phase before."""
        return TrainingLog(
            self.log_dir,
            profile=loop.profiled_steps,
            first_epoch=sum(phase.epochs for phase in self.phases),
            first_step=sum(phase.epochs * phase.steps for phase in self.phases),
        )


def _describe_divergence(name: str, config: TrainingConfig, *, epoch: int) -> str:
    """Say in which epoch a phase diverged, and which of its options to change."""
    section = "transfer.head_" if name == _HEAD else "training."
    changes = [f"lower {section}learning_rate, which is {config.learning_rate:g}"]
    if name != _HEAD and not config.clip_norm:
        changes.append("set training.clip_norm to 1")
    if config.precision != "float32":
        changes.append("set training.precision to float32")
    return (
        f"Training diverged in epoch {epoch} of phase {name}, as the loss was not finite: "
        f"{', or '.join(changes)}."
    )
