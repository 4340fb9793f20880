"""The phases of a training: one from random weights; from pretrained ones the head, then the rest.

The first of two phases fits a new last layer to fixed features. The second fine-tunes the layers
that `transfer.unfreeze` selects, which a random head would have spoiled.
"""

import dataclasses
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.contract.errors import ModelError
from components.contract.model_files import PHASE
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.export.signatures import Classifier
from components.trainer.loop.calibration import Predict, compile_logits
from components.trainer.loop.checkpoint import Progress, remove_checkpoints
from components.trainer.loop.distribution.workers import is_chief
from components.trainer.loop.feature_cache import FeatureCache, Tables
from components.trainer.loop.log import TrainingLog
from components.trainer.loop.loop import TrainingLoop
from components.trainer.loop.step import Step, find_state
from components.trainer.networks.layers import Dropout
from components.trainer.networks.parts import Parts, freeze, unfreeze_everything
from components.trainer.networks.warm_start import WarmStart
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Seconds between checkpoints of a trial: an epoch may take less than writing one.
_SAVE_AFTER = 30.0
# Names of the phases, and of the folders of their checkpoints.
_TRAIN, _HEAD, _FINE_TUNE = "train", "head", "fine_tune"


@dataclass(frozen=True)
class Phase:
    """A completed phase."""

    name: str
    progress: Progress
    """Its metrics and its best epoch."""
    seconds: float
    """Duration; next to none if a resumed training found the phase completed."""
    steps: int
    """Steps per epoch."""
    on_features: bool = False
    """Whether it trained on features in memory instead of images."""
    epoch_seconds: float = 0.0
    """Median duration of the epochs after the first; 0 if there were none."""


@dataclass(frozen=True)
class SharedLoop:
    """A compiled loop of a phase, which several trainings of the same network run."""

    loop: TrainingLoop
    state: list[tuple[tf.Variable, npt.NDArray[np.generic]]]
    """Variables of the step, with their values before the first training."""
    predict: Predict
    """From images or features to logits."""


@dataclass(frozen=True)
class Shared:
    """What trainings of one model, whose configurations `erase_tuned` makes equal, share."""

    loops: dict[str, SharedLoop] = field(default_factory=dict)
    """Of their phases."""
    features: Tables = field(default_factory=dict)
    """Of their images."""
    evaluations: dict[str, TrainingLoop] = field(default_factory=dict)
    """Phase → the loop whose compiled evaluation all steps of the model use."""


Recorded = dict[str, list[npt.NDArray[np.float32]]]
"""Phase → logits of the eval split after each epoch, [images, classes]."""


@dataclass
class Training:
    """All phases of one training."""

    model: tf_keras.Model
    """From uint8 images to logits; ends with the weights of the best epoch, or as the last epoch of
    `recorded` or `lengths` leaves it."""
    data: TrainingInput
    log_dir: str
    """Folder of the TensorBoard logs."""
    checkpoint_dir: str
    """Folder of checkpoints, with a folder for each phase; they stay."""
    phases: list[Phase] = field(default_factory=list)
    """Completed phases, in order."""
    exported: str = ""
    """Name of the phase whose weights the model has."""

    margin_sums: list[npt.NDArray[np.float32]] = field(default_factory=list)
    """`Margins.result` of each phase."""
    lengths: Mapping[str, int] | None = None
    """Phase → its epochs, if folds have chosen them instead of the eval split."""
    shared: Shared | None = None
    """What earlier trainings have left for this one."""
    recorded: Recorded | None = None
    """Filled by a training of cross-validation, which takes all epochs."""
    stop: Callable[[Progress], bool] | None = None
    """Called after each epoch of the last phase, which returns if it is true."""
    stopped: bool = False
    """Whether it has returned before it was complete."""
    start: WarmStart | None = None
    """The pushed model whose weights the model has at first, if there is one."""

    def run(self) -> None:
        """Train, from the latest checkpoint of the latest phase on.

        Raises:
            ModelError: training diverged before the loss on the eval split was finite.
            ConfigurationError: the network has no separate head, but starts from weights.
        """
        if not self.data.config.model.pretrained:
            self._fit(_TRAIN, self.data.config.training, self.model, self.data)
            return
        phases = self.full_lengths(self.data.config) if self.lengths is None else self.lengths
        if self.start and _FINE_TUNE in phases:
            # Its head has been trained.
            phases = {_FINE_TUNE: phases[_FINE_TUNE]}
        if _HEAD in phases:
            self._train_head()
        if _FINE_TUNE in phases:
            self._fine_tune()
        unfreeze_everything(self.model)

    @staticmethod
    def full_lengths(config: TrainerConfig) -> dict[str, int]:
        """Return the most epochs of each phase."""
        transfer, epochs = config.transfer, config.training.epochs
        if not config.model.pretrained:
            return {_TRAIN: epochs}
        later = 0 if transfer.unfreeze == "none" else epochs
        lengths = {_HEAD: transfer.head_epochs, _FINE_TUNE: later}
        return {phase: length for phase, length in lengths.items() if length}

    @property
    def history(self) -> dict[str, list[float]]:
        """Metric → its value in every epoch of all phases; `phase` is the number of the phase."""
        merged: dict[str, list[float]] = {}
        for number, phase in enumerate(self.phases, start=1):
            done = phase.progress
            numbers: list[float] = [number] * done.epochs
            for name, values in {**done.history, PHASE: numbers}.items():
                merged.setdefault(name, []).extend(values)
        return merged

    @property
    def margins(self) -> npt.NDArray[np.float32]:
        """Mean logit margin of each training image over all epochs; NaN if no step has seen it."""
        with np.errstate(invalid="ignore"):
            margins, weights = np.sum(self.margin_sums, axis=0).T
            means: npt.NDArray[np.float32] = margins / weights
        return means

    def _train_head(self) -> None:
        """Train the last layer alone, on cached features if `transfer.cache_features` is on."""
        transfer = self.data.config.transfer
        freeze(self.model, unfreeze="none")
        parts = Parts.of(self.model)
        # The loss of a single layer has one minimum. From zero, training reaches it with small
        # weights, which are up to a point more accurate with few images, as in BiT.
        for variable in () if self.start else parts.head.trainable_variables:
            variable.assign(tf.zeros_like(variable))
        tables = self.shared.features if self.shared else None
        cache = FeatureCache(parts.backbone, self.data, tables)
        if not (transfer.cache_features and cache.fits):
            self._fit(_HEAD, self._head_config(), self.model, self.data)
            return
        _LOGGER.info(
            "The last layer is trained on features that are computed once, from images without "
            "augmentation; set transfer.cache_features to false to train it with augmentation."
        )
        # On features that never change, dropout cost up to a point of accuracy.
        for layer in parts.head.layers:
            if isinstance(layer, Dropout):
                layer.trainable = False
        self._fit(_HEAD, self._head_config(), parts.head, cache)

    def _fine_tune(self) -> None:
        """Train the unfrozen layers, but keep the earlier weights if they were better."""
        config, variables = self.data.config, list(self.model.variables)
        earlier = [variable.numpy() for variable in variables]
        freeze(
            self.model,
            unfreeze=config.transfer.unfreeze,
        )
        self._fit(_FINE_TUNE, config.training, self.model, self.data)
        *before, last = (phase.progress for phase in self.phases)
        if self.recorded is not None or (self.lengths and last.best_epoch):
            return
        if not before or last.is_better(last.best, before[0].best):
            return
        for variable, value in zip(variables, earlier, strict=True):
            variable.assign(value)
        self.exported = _HEAD
        if last.best_epoch:
            _LOGGER.warning(
                "Fine-tuning has not improved the model (%s %.4f, before %.4f), so its weights are "
                "discarded: lower training.learning_rate, or unfreeze fewer blocks with "
                "transfer.unfreeze.",
                *(last.watched, last.best, before[0].best),
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

    def _fit(
        self,
        name: str,
        config: TrainingConfig,
        model: tf_keras.Model,
        source: TrainingInput | FeatureCache,
    ) -> None:
        """Run a phase, of the whole model on images or of the head on features.

        Raises:
            ModelError: it diverged, and neither it nor an earlier phase has weights to keep.
        """
        started, directory = time.perf_counter(), os.path.join(self.checkpoint_dir, name)
        strategy = self.model.distribute_strategy
        weights = self.data.class_weights(self.model.output_shape[-1])
        make_step = functools.partial(
            Step,
            model,
            config=config,
            augmentation=source.augmentation,
            batch_size=self.data.batch_size,
            steps=source.steps,
            class_weights=weights,
            records=self.data.train.total if self.recorded is None else 0,
        )
        with strategy.scope():
            if self.shared is not None:
                facts = repr((name, source.steps, self.data.batch_size, weights))
                shared = self._share(self.shared, name, facts, make_step, config, source)
                loop, record = shared.loop, self._record(shared, name, source)
            else:
                loop, record = TrainingLoop(make_step()), None
        with self._open_log(loop) as log:
            done = loop.fit(
                source.read,
                source.read_evaluation if self.data.evaluation.total else None,
                log=log,
                checkpoint_dir=directory,
                last_epoch=self.lengths[name] if self.lengths else 0,
                stop=None if name == _HEAD else self.stop,
                save_after=_SAVE_AFTER if self.shared else 0.0,
                on_epoch=record,
            )
        if done.diverged or not done.best_epoch:
            problem = _describe_divergence(name, config, epoch=done.epochs)
            if not done.best_epoch and not self.phases:
                if is_chief(strategy):
                    remove_checkpoints(directory)
                raise ModelError(problem)
            _LOGGER.warning("%s The weights of an earlier epoch are kept.", problem)
        self.stopped = not loop.is_complete(done)
        seconds = time.perf_counter() - started
        on_features = isinstance(source, FeatureCache)
        later = np.diff(loop.epoch_ends)
        epoch = float(np.median(later)) if later.size else 0.0
        self.phases.append(Phase(name, done, seconds, source.steps, on_features, epoch))
        self.exported = name
        if loop.step.margins:
            self.margin_sums.append(loop.step.margins.result())

    def _share(
        self,
        shared: Shared,
        name: str,
        facts: str,
        make_step: Callable[[], Step],
        config: TrainingConfig,
        source: TrainingInput | FeatureCache,
    ) -> SharedLoop:
        """Return the loop of earlier trainings as it was before them, for `config`."""
        if facts not in shared.loops:
            step = make_step()
            # Features are of one view of each image.
            views = 1 if isinstance(source, FeatureCache) else self.data.config.model.views
            predict = compile_logits(Classifier(step.model, views))
            loop = TrainingLoop(step)
            loop.share_evaluation(shared.evaluations.setdefault(name, loop))
            shared.loops[facts] = SharedLoop(loop, find_state(step), predict)
        found = shared.loops[facts]
        for variable, value in found.state:
            variable.assign(value)
        if average := found.loop.step.average:
            average.start_over()
        found.loop.step.tune(config)
        return found

    def _record(
        self, shared: SharedLoop, name: str, source: TrainingInput | FeatureCache
    ) -> Callable[[], None] | None:
        """Return a function that records the predictions, if they are wanted."""
        if self.recorded is None:
            return None
        evaluation, recorded = source.read_evaluation(), self.recorded.setdefault(name, [])
        return lambda: recorded.append(
            np.concatenate([shared.predict(images).numpy() for images, _ in evaluation])
        )

    def _open_log(self, loop: TrainingLoop) -> TrainingLog:
        """Open the logs of a phase, which continue those of the phase before."""
        return TrainingLog(
            self.log_dir,
            profile=loop.profiled_steps,
            first_epoch=sum(phase.progress.epochs for phase in self.phases),
            first_step=sum(phase.progress.epochs * phase.steps for phase in self.phases),
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
