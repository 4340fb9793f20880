import functools
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.contract.model_files import INPUT_WAIT_FRACTION, LEARNING_RATE, RATE
from components.images.options import TransformConfig
from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.training import TrainingConfig
from components.trainer.input.host_calls import sharing_captured
from components.trainer.input.sampler import TrainingOrder
from components.trainer.loop.checkpoint import Checkpoints, Progress
from components.trainer.loop.metrics import TrainingLog
from components.trainer.loop.step import Schedule, Step
from components.trainer.loop.step_loop import Pace
from components.trainer.loop.train import Mode, TrainingLoop
from components.trainer.networks.layers import Dropout
from components.trainer.networks.networks import precision
from tests.trainer.input.shard_folder import SIZE, ShardFolder

BATCH = 16
STEPS = 4
IMAGES = TransformConfig(size=SIZE)


class Killed(Exception):
    pass


def kill(
    batches: tf.data.Dataset, first: int, *, at: int | None, seen: dict[int, bytes]
) -> tf.data.Dataset:
    """Raise `Killed` from batch `at` on; the first batch is number `first`. Keep images before."""

    def listen(number: Any, images: Any) -> Any:
        if at is not None and number >= at:
            raise Killed
        seen[int(number)] = images.tobytes()
        return np.int64(0)

    def tap(number: tf.Tensor, batch: tuple[tf.Tensor, ...]) -> Any:
        with tf.control_dependencies([tf.numpy_function(listen, [number, batch[0]], tf.int64)]):
            return tf.identity(batch[0]), *batch[1:]

    return batches.enumerate(first).map(tap)


def small() -> tf_keras.Model:
    """A model that is traced fast, with every kind of variable that a checkpoint must hold."""
    layers = [
        tf_keras.layers.Rescaling(1 / 255, input_shape=(IMAGES.seen_size, IMAGES.seen_size, 3)),
        tf_keras.layers.Conv2D(4, 3, strides=4, use_bias=False),
        tf_keras.layers.BatchNormalization(),
        tf_keras.layers.GlobalAveragePooling2D(),
        Dropout(0.3, 0),
        tf_keras.layers.Dense(3),
    ]
    return tf_keras.Sequential(layers)


def linear(features: int = 3) -> tf_keras.Model:
    """A model for images of any size that is traced fastest."""
    layers = [
        tf_keras.layers.Rescaling(1 / 255, input_shape=(None, None, 3)),
        tf_keras.layers.GlobalAveragePooling2D(),
        tf_keras.layers.Dense(features),
        tf_keras.layers.Dense(3),
    ]
    return tf_keras.Sequential(layers)


class Training:
    """A training that records its input, and can be interrupted at any step."""

    def __init__(self, shards: ShardFolder, folder: Path, **options: Any) -> None:
        self._shards = shards
        self.folder = folder
        self.build = options.pop("build", linear)
        # Tracing all of it takes seconds.
        self.augmentation = AugmentationConfig(shift=0.1 if self.build is small else 0.0)
        self.images: TransformConfig = options.pop("images", IMAGES)
        self.input: InputConfig = options.pop("input", InputConfig(cache="none"))
        self.steps, self.batch = options.pop("steps", STEPS), options.pop("batch", BATCH)
        self.config = TrainingConfig(**{"epochs": 3, "seed": 2, **options})
        self.seen: dict[int, bytes] = {}
        """Step → the images of its batch."""

    def _dataset(self, split: str, size: int, order: TrainingOrder | None) -> tf.data.Dataset:
        return self._shards.dataset(
            split, self.images, batch_size=size, options=self.input, order=order
        )

    def _read(
        self, step: int, part: tf.distribute.InputContext, kill_at: int | None
    ) -> tf.data.Dataset:
        order = TrainingOrder(self.config.seed).for_worker(step, part)
        size = part.get_per_replica_batch_size(self.batch)
        return kill(self._dataset("train", size, order), order.start, at=kill_at, seen=self.seen)

    def run(
        self,
        kill_at: int | None = None,
        strategy: tf.distribute.Strategy | None = None,
        stop: Callable[[Any], bool] | None = None,
    ) -> tuple[list[Any], dict[str, list[float]]]:
        """Return the weights and the history; a second run resumes an interrupted one."""
        tf_keras.utils.set_random_seed(self.config.seed)
        tf.config.experimental.enable_op_determinism()
        strategy = strategy or tf.distribute.get_strategy()
        with strategy.scope():
            with precision(self.config.precision):
                model = self.build()
            step = Step(
                model,
                config=self.config,
                augmentation=self.augmentation,
                batch_size=self.batch,
                steps=self.steps,
            )
            loop = TrainingLoop(step)
        with TrainingLog(str(self.folder / "logs")) as log:
            done = loop.fit(
                functools.partial(self._read, kill_at=kill_at),
                functools.partial(self._dataset, "eval", BATCH, None),
                log=log,
                checkpoint_dir=str(self.folder / "checkpoints"),
                mode=Mode(stop=stop, save_after=30.0) if stop else None,
            )
        return model.get_weights(), done.history


EVERYTHING: dict[str, Any] = {
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "weight_decay": 1e-3,
    "label_smoothing": 0.1,
    "metric": "balanced_accuracy",
    "precision": "bfloat16",
}
# Options, steps between checkpoints, the step of the kill and the one after the last checkpoint.
RESUMED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "loss scaling, end of an epoch": ({"precision": "float16"}, 0, 6, 4),
    "everything on, middle of an epoch": (EVERYTHING, 3, 7, 6),
}


def assert_same(ours: tuple[list[Any], Any], theirs: tuple[list[Any], Any]) -> None:
    """Compare weights and history bit for bit, except for measured times."""
    tf.nest.map_structure(np.testing.assert_array_equal, ours[0], theirs[0])
    for name in set(ours[1]) - {RATE, INPUT_WAIT_FRACTION}:
        assert ours[1][name] == theirs[1][name]


@pytest.mark.slow
@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_training_equals_an_uninterrupted_one(
    shard_folder: ShardFolder, tmp_path: Path, name: str
) -> None:
    options, checkpoint_steps, kill_at, resumed_at = RESUMED[name]
    whole = Training(shard_folder, tmp_path / "whole", build=small, **options)
    expected = whole.run()
    options = {**options, "build": small, "checkpoint_steps": checkpoint_steps}
    killed = Training(shard_folder, tmp_path / "killed", **options)
    with pytest.raises(tf.errors.UnknownError, match="Killed"):
        killed.run(kill_at=kill_at)
    killed.seen.clear()
    assert_same(killed.run(), expected)
    assert min(killed.seen) == resumed_at
    common = set(killed.seen) & set(whole.seen)
    assert common >= set(range(resumed_at, 3 * STEPS))
    assert all(killed.seen[step] == whole.seen[step] for step in common)


@pytest.mark.slow
def test_history_and_logs_of_a_completed_training(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing = Mock(wraps=sharing_captured)
    monkeypatch.setattr("components.trainer.loop.train.sharing_captured", sharing)
    training = Training(shard_folder, tmp_path / "one")
    weights, history = training.run()
    assert set(history) == {
        *("loss", "accuracy", "balanced_accuracy"),
        *("val_loss", "val_accuracy", "val_balanced_accuracy"),
        *(RATE, INPUT_WAIT_FRACTION, LEARNING_RATE),
    }
    assert all(len(values) == 3 for values in history.values())
    assert sharing.call_count == 1 + 3, "iterators for training and for each evaluation"
    assert all(0 <= fraction <= 1 for fraction in history[INPUT_WAIT_FRACTION])
    assert all(rate > 0 for rate in history[RATE])
    schedule = Schedule(training.config, steps=STEPS)
    assert history[LEARNING_RATE] == [float(schedule(n * STEPS - 1)) for n in (1, 2, 3)]
    assert list(training.folder.rglob("events.out.tfevents.*"))
    training.seen.clear()
    assert_same(training.run(), (weights, history))
    assert not training.seen, "restored without a step"
    by_three = Training(shard_folder, tmp_path / "three")
    monkeypatch.setattr(Pace, "steps", lambda _, limit: min(3, limit))
    for epochs in (1, 2):
        # The epochs of stopped trainings are in the checkpoint.
        assert len(by_three.run(stop=lambda _: True)[1]["loss"]) == epochs
    assert_same(by_three.run(), (weights, history))
    assert set(by_three.seen) >= set(range(3 * STEPS))


def checkpoints_of(model: tf_keras.Model, folder: Path) -> Checkpoints:
    optimizer = tf_keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return Checkpoints(str(folder), {"model": model, "optimizer": optimizer})


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "cut off": ("data-*", lambda file: file.write_bytes(file.read_bytes()[:200])),
    "overwritten": ("index", lambda file: file.write_bytes(bytes(file.stat().st_size))),
    "lost": ("data-*", Path.unlink),
    "of another network": ("index", lambda file: None),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_an_unusable_checkpoint_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    saved = checkpoints_of(linear(5 if "network" in name else 3), tmp_path)
    saved.progress.history["val_loss"] = [1.0]
    saved.save()
    suffix, damage = DAMAGE[name]
    [file] = tmp_path.glob(f"ckpt-*.{suffix}")
    damage(file)
    model = linear()
    untrained = model.get_weights()
    checkpoints = checkpoints_of(model, tmp_path)
    with caplog.at_level(logging.WARNING):
        checkpoints.restore()
    assert "Training starts over, as checkpoint" in caplog.text
    assert checkpoints.progress == Progress()
    tf.nest.map_structure(np.testing.assert_array_equal, model.get_weights(), untrained)


def test_an_unreachable_store_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: Any) -> None:
        raise tf.errors.UnavailableError(None, None, "503")

    checkpoints = checkpoints_of(linear(), tmp_path)
    checkpoints.save()
    monkeypatch.setattr(tf.train.Checkpoint, "restore", unavailable)
    with pytest.raises(tf.errors.UnavailableError):
        checkpoints.restore()


NAN, INF = float("nan"), float("inf")


LOSS, ACCURACY = "val_loss", "val_accuracy"
BEST: dict[str, tuple[str, list[float], list[float], int]] = {
    "the lowest loss": (LOSS, [3.0, 1.0, 2.0, 4.0], [0.0] * 4, 2),
    "after NaN": (LOSS, [NAN, 2.0, 3.0], [0.0] * 3, 2),
    "no infinite loss": (LOSS, [2.0, NAN, -INF, 1.0], [0.0] * 4, 4),
    "all diverged": (LOSS, [NAN, INF], [0.0] * 2, 0),
    "whatever its loss": (ACCURACY, [1.0, 2.0, 0.5], [0.5, 0.9, 0.7], 2),
    "the first of equal ones": (ACCURACY, [2.0, 1.0], [0.5, 0.5], 1),
    "no accuracy if diverged": (ACCURACY, [NAN, 1.0], [0.9, 0.5], 2),
}


@pytest.mark.parametrize("name", BEST)
def test_the_best_epoch(name: str) -> None:
    watched, losses, accuracies, best = BEST[name]
    progress = Progress(watched)
    for loss, accuracy in zip(losses, accuracies, strict=True):
        values = {LOSS: loss, ACCURACY: accuracy}
        progress.end_epoch(values, SimpleNamespace(get_weights=lambda: [progress.epochs]))
    assert progress.best_epoch == best
    assert progress.best_weights == ([best] if best else [])
    assert not progress.is_better(progress.best, progress.best)


@pytest.mark.slow
def test_patience_ends_training_with_the_best_weights(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[Any] = []
    end_epoch = Progress.end_epoch

    def with_losses(progress: Any, values: dict[str, float], model: Any, **keep: bool) -> None:
        weights.append(model.get_weights())
        end_epoch(progress, {**values, "val_loss": next(losses)}, model, **keep)

    monkeypatch.setattr(Progress, "end_epoch", with_losses)
    for keep, kept, expected in (("best", 1, [1.0, 2, 4]), ("last", 4, [1.0, 2, 4, 0.5])):
        losses = iter([NAN, 1.0, 2.0, 4.0, 0.5])
        weights.clear()
        options: dict[str, Any] = {"epochs": 5, "patience": 2, "keep": keep}
        final, history = Training(shard_folder, tmp_path / keep, **options).run()
        assert history["val_loss"][1:] == expected
        assert_same((final, {}), (weights[kept], {}))


@pytest.mark.slow
@pytest.mark.parametrize(("before", "keep"), [(True, "best"), (False, "last")])
def test_divergence_ends_training_with_the_best_weights(
    shard_folder: ShardFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: bool,
    keep: str,
) -> None:
    step = STEPS + 1 if before else 2 * STEPS - 1
    run_steps = TrainingLoop._run_steps
    kept: dict[int, list[Any]] = {}

    def spoil(loop: TrainingLoop, batches: Any, progress: Progress, log: TrainingLog) -> None:
        first, bias = loop._steps_done(progress), loop.step.model.layers[-1].bias
        kept.setdefault(first, loop.step.model.get_weights())
        bias.assign([NAN] * 3 if before and first == step else bias)
        run_steps(loop, batches, progress, log)
        bias.assign([NAN] * 3 if not before and first == step else bias)

    monkeypatch.setattr(TrainingLoop, "_run_steps", spoil)
    monkeypatch.setattr(Pace, "steps", lambda _, limit: min(1, limit))
    options: dict[str, Any] = {"metric": "accuracy", "keep": keep}
    training = Training(shard_folder, tmp_path / "diverged", epochs=9, **options)
    weights, history = training.run()
    assert np.isnan(history["val_loss"]).tolist() == [False, True]
    assert_same((weights, {}), (kept[STEPS], {}))
    training.seen.clear()
    assert_same((training.run()[0], {}), (kept[STEPS], {}))
    assert not training.seen, "a diverged training is over"


@pytest.mark.slow
def test_another_number_of_replicas_changes_the_steps_of_an_epoch(
    shard_folder: ShardFolder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pace, "steps", lambda _, limit: min(1, limit))
    options: dict[str, Any] = {"epochs": 2, "checkpoint_steps": 7}
    killed = Training(shard_folder, tmp_path, steps=2 * STEPS, batch=BATCH // 2, **options)
    with pytest.raises(tf.errors.UnknownError, match="Killed"):
        killed.run(kill_at=2 * STEPS - 1)
    resumed = Training(shard_folder, tmp_path, **options)
    _, history = resumed.run()
    assert "epochs have 4 steps now" in caplog.text
    assert min(resumed.seen) == 3, "7 of 8 steps of half the size are done"
    schedule = Schedule(resumed.config, steps=STEPS)
    assert history[LEARNING_RATE] == [float(schedule(n * STEPS - 1)) for n in (1, 2)]
