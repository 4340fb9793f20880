"""A training: its phases, their epochs, evaluation and early stopping.

From random weights there is one phase. From pretrained ones, the first fits a new last layer to
fixed features, and the second fine-tunes the layers that `transfer.unfreeze` selects, if possible
on what the layers before have computed once. It is kept if it is better beyond chance. Keras's
`fit` can neither resume in the middle of an epoch with the next examples, nor measure how long a
step waited for them.
"""

import functools
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.contract.errors import ModelError
from components.contract.model_files import INPUT_WAIT_FRACTION, LEARNING_RATE, PHASE, RATE
from components.host.progress import report_epoch, report_progress
from components.storage.transfer import remove_folder
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.input.host_calls import sharing_captured
from components.trainer.loop.activations import Activations, Tables, choose_views
from components.trainer.loop.calibration import compile_logits, improves, predict_logits
from components.trainer.loop.checkpoint import Checkpoints, Progress
from components.trainer.loop.linear_head import fit_head, measure
from components.trainer.loop.metrics import TrainingLog
from components.trainer.loop.step import Step, erase_tuned, find_state
from components.trainer.loop.step_loop import Pace, StepLoop
from components.trainer.loop.strategy import is_chief, mean_of_workers, sync_replicas
from components.trainer.networks.parts import (
    Parts,
    count_unfrozen,
    divide,
    freeze,
    unfreeze_everything,
)
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Training images to which the head is fitted; they are in the order of a hash.
_MOST_FOR_HEAD = 50_000
# Names of the phases, and of the folders of their checkpoints.
_TRAIN, HEAD, FINE_TUNE = "train", "head", "fine_tune"
# Compiled loops that are kept for other trainings; each has the weights three times in memory.
_MOST_LOOPS = 6

Logits = npt.NDArray[np.float32]
Source = TrainingInput | Activations
Evaluation = Callable[[], tf.data.Dataset] | None
"""Returns every example of the eval split; None: there are none."""


def full_lengths(config: TrainerConfig) -> dict[str, int]:
    """Return the most epochs of each phase."""
    epochs = config.training.epochs
    if not config.model.pretrained:
        return {_TRAIN: epochs}
    later = {} if config.transfer.unfreeze == "none" else {FINE_TUNE: epochs}
    return {HEAD: 1} | later


@dataclass(frozen=True)
class Mode:
    """How a training ends and which weights it keeps: by default as its options say."""

    lengths: Mapping[str, int] | None = None
    """Phase → its most epochs; None: as the options say."""
    chooses: bool = True
    """Whether the eval split chooses the epoch, within the patience of the options, and whether
    the second phase is kept."""
    keeps_last: bool = False
    """Whether it keeps the last weights, whatever the options say."""
    saves: bool = True
    """Whether it writes checkpoints, and ends with the weights that it keeps."""
    save_after: float = 0.0
    """Least seconds between checkpoints, but for the last one."""
    judge: Callable[[str, Logits, npt.NDArray[np.int64]], dict[str, float]] | None = None
    """Takes the phase, and the logits and label ids of the eval split, after each epoch; returns
    what `measure` does. All must fit in memory."""
    stop: Callable[[Progress], bool] = lambda _: False
    """Says after an epoch whether to stop; a later training goes on from its checkpoint."""


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
    """Whether it trained on what frozen layers had computed instead of images."""


@dataclass(frozen=True)
class Shared:
    """What trainings of one model share."""

    loops: "dict[str, TrainingLoop]" = field(default_factory=dict)
    """Compiled loops of their phases, by what `Step.tune` cannot change."""
    activations: Tables = field(default_factory=dict)
    """Of their images."""
    divided: dict[int, tuple[tf_keras.Model, tf_keras.Model] | None] = field(default_factory=dict)
    """Number of last blocks → the two models of `divide`."""
    describe: dict[tuple[tf_keras.Model, tf.TensorSpec], Any] = field(default_factory=dict)
    """Model, and what it reads → compiled function of a batch to its features."""


@dataclass
class Training:
    """All phases of one training."""

    model: tf_keras.Model
    """From uint8 images to logits; ends with the weights that the mode keeps."""
    data: TrainingInput
    log_dir: str
    """Folder of the TensorBoard logs."""
    checkpoint_dir: str
    """Folder of checkpoints, with a folder for each phase; they stay."""
    mode: Mode = field(default_factory=Mode)
    shared: Shared = field(default_factory=Shared)
    """What earlier trainings have left for this one, and what it leaves for others."""

    phases: list[Phase] = field(default_factory=list)
    """Completed phases, in order."""
    exported: str = ""
    """Name of the phase whose weights the model has."""
    stopped: bool = False
    """Whether its mode has stopped it before it was complete."""
    answers: Logits | None = None
    """Logits of the eval split after the first of two phases, [images, classes]."""

    def run(self) -> None:
        """Train, from the latest checkpoint of the latest phase on.

        Raises:
            ModelError: training diverged before the loss on the eval split was finite.
            ConfigurationError: the network has fewer blocks than `transfer.unfreeze` names.
        """
        if _TRAIN in self._lengths:
            self._fit(_TRAIN, self.model, self.data)
            return
        self._train_head()
        if FINE_TUNE in self._lengths:
            self._fine_tune()
        unfreeze_everything(self.model)

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

    def see_fixed(self) -> Activations:
        """Return the features of images as they are, before any fine-tuning."""
        backbone, tables = Parts.of(self.model).backbone, self.shared.activations
        return Activations(backbone, self.data, most=_MOST_FOR_HEAD, tables=tables)

    def _train_head(self) -> None:
        """Fit the last layer to features of the images as they are."""
        started = time.perf_counter()
        freeze(self.model, unfreeze="none")
        parts, data = Parts.of(self.model), self.data
        seen = self.see_fixed()
        features, ids = seen.first_views(data.train)
        weights = data.class_weights(self._classes)
        predict = fit_head(parts.head, features, ids, class_weights=weights)
        logits = predict(features)
        values = measure(logits, ids)
        if data.evaluation.total:
            others, their_ids = seen.first_views(data.evaluation)
            self.answers = answers = predict(others)
            judge = self.mode.judge or (lambda _, logits, ids: measure(logits, ids))
            judged = judge(HEAD, answers, their_ids)
            values |= {f"val_{name}": value for name, value in judged.items()}
        else:
            values |= {f"val_{name}": math.nan for name in [*values]}
        seconds = time.perf_counter() - started
        values |= {RATE: len(ids) / seconds, INPUT_WAIT_FRACTION: 0.0, LEARNING_RATE: 0.0}
        report_epoch(values, epoch=1, epochs=1, name=HEAD)
        watched = f"val_{data.config.training.metric}"
        history = {name: [value] for name, value in values.items()}
        done = Progress(watched, history=history, best_epoch=1, steps_per_epoch=1)
        self.phases.append(Phase(HEAD, done, seconds, steps=1, on_features=True))
        self.exported = HEAD

    def _fine_tune(self) -> None:
        """Train the unfrozen layers; keep the earlier weights unless the new ones are better."""
        freeze(self.model, unfreeze=self.data.config.transfer.unfreeze)
        model, source = self.find_unfrozen()
        variables = list(model.variables)
        earlier = [variable.numpy() for variable in variables]
        loop = self._fit(FINE_TUNE, model, source)
        last = self.phases[-1].progress

        def is_better() -> bool:
            if not self.mode.chooses or self.answers is None:
                return True
            logits, ids = loop.find_logits(source.read_evaluation())
            count = min(len(logits), len(self.answers))
            return improves(self.answers[:count], logits[:count], ids[:count])

        if self.stopped or (last.best_epoch and is_better()):
            return
        for variable, value in zip(variables, earlier, strict=True):
            variable.assign(value)
        self.exported = HEAD
        if last.best_epoch:
            _LOGGER.warning(
                "Fine-tuning has not improved the model beyond chance, so it has the weights of "
                "the first phase: lower training.learning_rate, or unfreeze fewer blocks with "
                "transfer.unfreeze."
            )

    def find_unfrozen(self) -> tuple[tf_keras.Model, Source]:
        """Return the model to fine-tune and what it reads: activations of the frozen layers.

        If they cannot be kept, it is the whole model, which reads images.
        """
        blocks = count_unfrozen(self.model, self.data.config.transfer.unfreeze)
        divided = self.shared.divided
        if blocks not in divided:
            with self.model.distribute_strategy.scope():
                divided[blocks] = divide(self.model, blocks=blocks)
        if two := divided[blocks]:
            frozen, rest = two
            tables = self.shared.activations
            if views := choose_views(frozen, self.data, tables):
                return rest, Activations(frozen, self.data, views=views, tables=tables)
        return self.model, self.data

    @property
    def _classes(self) -> int:
        return int(self.model.output_shape[-1])

    @property
    def _lengths(self) -> Mapping[str, int]:
        """The most epochs of each phase."""
        return self.mode.lengths or full_lengths(self.data.config)

    def _fit(self, name: str, model: tf_keras.Model, source: Source) -> "TrainingLoop":
        """Run a phase, of the whole model on images or of its last layers on activations.

        Raises:
            ModelError: it diverged, and neither it nor an earlier phase has weights to keep.
        """
        started, directory = time.perf_counter(), os.path.join(self.checkpoint_dir, name)
        loop = self._find_loop(name, model, source)
        # The logs continue those of the phase before.
        log = TrainingLog(
            self.log_dir,
            first_epoch=sum(phase.progress.epochs for phase in self.phases),
            first_step=sum(phase.progress.epochs * phase.steps for phase in self.phases),
        )
        with log:
            done = loop.fit(
                source.read,
                source.read_evaluation if self.data.evaluation.total else None,
                log=log,
                checkpoint_dir=directory,
                epochs=self._lengths[name],
                mode=self.mode,
                phase=name,
            )
        if done.diverged or not done.best_epoch:
            problem = _describe_divergence(name, self.data.config.training, epoch=done.epochs)
            if not done.best_epoch and not self.phases:
                if is_chief(self.model.distribute_strategy):
                    remove_folder(directory)
                raise ModelError(problem)
            _LOGGER.warning("%s The weights of an earlier epoch are kept.", problem)
        self.stopped = not loop.is_complete(done)
        seconds, on_features = time.perf_counter() - started, isinstance(source, Activations)
        self.phases.append(Phase(name, done, seconds, source.steps, on_features))
        self.exported = name
        return loop

    def _find_loop(self, name: str, model: tf_keras.Model, source: Source) -> "TrainingLoop":
        """Return the loop of a phase, compiled by an earlier training if there was one."""
        loops, config = self.shared.loops, self.data.config.training
        weights = self.data.class_weights(self._classes)
        compiled = (name, model.name, self.data.config.transfer, self.data.batch_size, weights)
        facts = repr((*compiled, source.augmentation, erase_tuned(config)))
        with self.model.distribute_strategy.scope():
            if facts in loops:
                loops[facts].start_over(config, source.steps)
            else:
                for old in [*loops][: 1 - _MOST_LOOPS]:
                    del loops[old]
                step = Step(
                    model,
                    config=config,
                    augmentation=source.augmentation,
                    batch_size=self.data.batch_size,
                    steps=source.steps,
                    class_weights=weights,
                )
                alike = (loop for loop in loops.values() if loop.step.model is model)
                loops[facts] = TrainingLoop(step, other=next(alike, None))
        return loops[facts]


def _describe_divergence(name: str, config: TrainingConfig, *, epoch: int) -> str:
    """Say in which epoch a phase diverged, and which of its options to change."""
    changes = [f"lower training.learning_rate, which is {config.learning_rate:g}"]
    if config.precision != "float32":
        changes.append("set training.precision to float32")
    return (
        f"Training diverged in epoch {epoch} of phase {name}, as the loss was not finite: "
        f"{', or '.join(changes)}."
    )


ReadBatches = Callable[[int, tf.distribute.InputContext], tf.data.Dataset]
"""From the number of steps done so far and the context of an input pipeline to its endless
batches, one for each replica and step."""


class TrainingLoop:
    """The epochs of a phase. Several trainings of one network can run it, one after the other."""

    def __init__(self, step: Step, *, other: "TrainingLoop | None" = None) -> None:
        """Repeat `step`, made in the scope of the current `tf.distribute.Strategy`.

        Another loop of the same model shares its compiled evaluation.
        """
        self._strategy = tf.distribute.get_strategy()
        self.step = step
        self._predict = compile_logits(step.model)
        self._run = StepLoop(step.update)
        self._pace = Pace()
        self._evaluate = tf.function(self._evaluate_replicas, autograph=False)
        if other:
            self.step.evaluation, self._evaluate = other.step.evaluation, other._evaluate
        self._initial = find_state(step)

    def start_over(self, config: TrainingConfig, steps: int) -> None:
        """Forget the trainings before, with configurations equal to this by `erase_tuned`."""
        for variable, value in self._initial:
            variable.assign(value)
        self.step.tune(config, steps)

    @property
    def _config(self) -> TrainingConfig:
        return self.step.config

    @property
    def _steps(self) -> int:
        return self.step.steps

    def fit(
        self,
        read: ReadBatches,
        evaluation: Evaluation,
        *,
        log: TrainingLog,
        checkpoint_dir: str,
        epochs: int = 0,
        mode: Mode | None = None,
        phase: str = _TRAIN,
    ) -> Progress:
        """Train from the latest checkpoint, if any; a completed training runs no further step.

        Training that diverges stops at once, with an epoch whose metrics on the eval split are NaN.

        Args:
            read: returns the training batches.
            evaluation: returns every example of the eval split; None: there are none.
            log: open.
            checkpoint_dir: keeps the last checkpoint until the model is exported.
            epochs: at most; 0: as configured. The schedule is that of the configuration.
            mode: how training ends.
            phase: its name, for `mode`.

        Returns:
            The completed training. Its history has `loss` as minimized, `accuracy` and
            `balanced_accuracy` on the augmented training images; `val_loss`, the plain
            cross-entropy, `val_accuracy` and `val_balanced_accuracy` on the eval split;
            `images_per_second`; `input_wait_fraction`, the fraction of step time spent waiting for
            input; the last `learning_rate`.
        """
        self._mode, self._phase, self._stopped = mode or Mode(), phase, False
        self._epochs = epochs or self._config.epochs
        checkpoints = Checkpoints(
            checkpoint_dir, self.step.checkpointed, watched=f"val_{self._config.metric}"
        )
        checkpoints.restore()
        progress = checkpoints.progress
        if progress.fit_epoch(self._steps) and not self._is_over(progress):
            _LOGGER.warning(
                "The number of replicas has changed, so epochs have %d steps now: training resumes "
                "at about the same image, and its weights will differ.",
                self._steps,
            )
            # The learning rate follows from it.
            self.step.optimizer.iterations.assign(self._steps_done(progress))
        if not self._is_over(progress):
            self._train(read, evaluation, checkpoints, log)
        if progress.best_epoch and self._mode.saves:
            self.step.model.set_weights(progress.best_weights)
        # The progress outlives the phase; this copy of the model need not.
        progress.best_weights.clear()
        return progress

    def is_complete(self, progress: Progress) -> bool:
        """Return whether no further call would train any more."""
        patient = not self._mode.chooses or self._config.keep == "last"
        waited = progress.epochs - progress.best_epoch
        late = waited >= self._config.patience and not patient
        return progress.diverged or late or progress.epochs >= self._epochs

    def _is_over(self, progress: Progress) -> bool:
        return self._stopped or self.is_complete(progress)

    def _steps_done(self, progress: Progress) -> int:
        return progress.epochs * self._steps + progress.steps

    def _train(
        self, read: ReadBatches, evaluation: Evaluation, checkpoints: Checkpoints, log: TrainingLog
    ) -> None:
        """Train from the restored step to the end."""
        progress, every = checkpoints.progress, self._config.checkpoint_steps
        read_part = functools.partial(read, self._steps_done(progress))
        distributed = self._strategy.distribute_datasets_from_function(read_part)
        with sharing_captured():
            batches = iter(distributed)
        images = distributed_images = evaluation and evaluation()
        # Distributing copies all pixels.
        several = self._strategy.num_replicas_in_sync > 1 and not self._mode.judge
        if images is not None and several:
            distributed_images = self._strategy.experimental_distribute_dataset(images)
        saved = time.perf_counter()
        while not self._is_over(progress):
            self._run_steps(batches, progress, log)
            over = progress.diverged or progress.steps == self._steps
            if over:
                self._end_epoch(images, distributed_images, progress, log)
                self._stopped = self._mode.stop(progress)
            due = over or (every and self._steps_done(progress) % every == 0)
            late = time.perf_counter() - saved >= self._mode.save_after or self._is_over(progress)
            if due and late and self._mode.saves:
                checkpoints.save()
                saved = time.perf_counter()

    def _run_steps(self, batches: Any, progress: Progress, log: TrainingLog) -> None:
        """Run the steps of one call."""
        first = self._steps_done(progress)
        count = self._pace.steps(self._uninterrupted_steps(first))
        started = time.perf_counter()
        loss, waited = self._run(batches, first, count)
        seconds = time.perf_counter() - started
        self._pace.record(count, mean_of_workers(seconds, self._strategy))
        progress.steps += count
        progress.seconds += seconds
        progress.waited += waited
        # Loss scaling repairs an overflow, unless it has reached statistics of normalization.
        progress.diverged = not math.isfinite(loss) and not self._is_finite()
        last = first + count - 1
        log.write_step(last, learning_rate=float(self.step.schedule(last)), loss=loss)
        if progress.steps < self._steps:
            note = f"loss {loss:.3f} {count * self.step.batch_size / seconds:,.0f}/s"
            done = self._steps_done(progress) / self._steps
            report_progress(done=done, total=self._config.epochs, unit="epochs", note=note)

    def _uninterrupted_steps(self, first: int) -> int:
        """Return the number of steps until Python has something to do."""
        ends = [self._steps - first % self._steps]
        if every := self._config.checkpoint_steps:
            ends.append(every - first % every)
        return min(ends)

    def _end_epoch(
        self, images: Any, distributed_images: Any, progress: Progress, log: TrainingLog
    ) -> None:
        """Evaluate the network on the eval split, if there is one, and record the epoch."""
        step, judge = self.step, self._mode.judge
        sync_replicas(step.model.variables, self._strategy)
        nothing = progress.diverged or images is None
        values = step.train.result()
        if judge and not nothing:
            judged = judge(self._phase, *self.find_logits(images))
        else:
            with sharing_captured():
                batches = iter(() if nothing else distributed_images)
            for batch, labels in batches:
                self._evaluate(batch, labels)
            # Metrics of no images are NaN.
            judged = step.evaluation.result()
        values |= {f"val_{name}": value for name, value in judged.items()}
        values[RATE] = progress.steps * step.batch_size / progress.seconds
        values[INPUT_WAIT_FRACTION] = progress.waited / progress.seconds
        values[LEARNING_RATE] = float(step.schedule(self._steps_done(progress) - 1))
        usable = images is None or math.isfinite(values["val_loss"])
        keep = self._mode.keeps_last or (self._config.keep == "last" and usable)
        progress.end_epoch(values, step.model, keep=keep)
        if not math.isfinite(values["val_loss"]):
            progress.diverged |= not math.isfinite(values["loss"]) or not self._is_finite()
        log.write(values, progress.epochs)
        step.train.reset()
        step.evaluation.reset()
        report_epoch(values, epoch=progress.epochs, epochs=self._config.epochs)

    def find_logits(self, images: tf.data.Dataset) -> tuple[Logits, npt.NDArray[np.int64]]:
        """Return what `predict_logits` returns for the current weights."""
        with sharing_captured():
            batches = iter(images)
        return predict_logits(self._predict, batches)

    def _is_finite(self) -> bool:
        """Return whether all weights and statistics of the model are finite."""
        floats = (v.numpy() for v in self.step.model.variables if v.dtype.is_floating)
        return all(np.isfinite(values).all() for values in floats)

    def _evaluate_replicas(self, images: Any, labels: Any) -> None:
        self._strategy.run(self.step.evaluate, (images, labels))
