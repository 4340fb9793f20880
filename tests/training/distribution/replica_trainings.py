"""Trainings on several logical CPUs, or as one of several workers, in a process of its own.

`python -m tests.training.distribution.replica_trainings SHARDS TARGET NAME…` runs trainings by
name, and writes weights and metrics of each to TARGET/name.npz: logical devices and clusters must
be set up before TensorFlow does anything else.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from components.contract.model_files import INPUT_WAIT_FRACTION, RATE
from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.sampler import TrainingOrder
from pipeline_def.data.shards import Shards
from pipeline_def.model.networks import build_model
from pipeline_def.training.distribution.strategy import find_strategy
from pipeline_def.training.log import TrainingLog
from pipeline_def.training.loop import TrainingLoop
from pipeline_def.training.steps.step import Step
from tests.data.shard_folder import FEATURE_SPEC, SIZE

BATCH, EPOCHS, SEED = 16, 3, 2

# Options with state, all of which a checkpoint has to restore.
FULL: dict[str, Any] = {
    "ema": 0.9,
    "accumulate": 2,
    "optimizer": "adamw",
    "weight_decay": 1e-2,
    "checkpoint_steps": 3,
    "metric": "balanced_accuracy",
}
PLAIN: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.05}


def plain() -> tf_keras.Model:
    """Return a network without batch normalization, whose statistics differ by replica."""
    layers = [
        tf_keras.layers.Rescaling(1 / 255, input_shape=(SIZE, SIZE, 3)),
        tf_keras.layers.Conv2D(4, 3, strides=4, activation="relu"),
        tf_keras.layers.GlobalAveragePooling2D(),
        tf_keras.layers.Dense(3),
    ]
    return tf_keras.Sequential(layers)


def network() -> tf_keras.Model:
    config = ModelConfig(name="cnn", width=4, dropout=0.3)
    return build_model(config, size=SIZE, classes=3, mean=[128] * 3, variance=[5000] * 3)


class Training:
    """A training on shards, which can be killed at any step and resumed."""

    def __init__(self, shards: str, target: Path, strategy: tf.distribute.Strategy) -> None:
        self._shards, self._target, self._strategy = shards, target, strategy

    def run(
        self,
        name: str,
        *,
        build: Any,
        reader: Any = "indexed",
        kill_at: int | None = None,
        **options: Any,
    ) -> None:
        tf_keras.utils.set_random_seed(SEED)
        mixed = AugmentationConfig(flip=True, mixup=0.2)
        with self._strategy.scope():
            model = build()
            step = Step(
                model,
                config=TrainingConfig(epochs=EPOCHS, batch_size=BATCH, seed=SEED, **options),
                augmentation=AugmentationConfig(shift=0.0) if build is plain else mixed,
                batch_size=BATCH,
                steps=Shards.of_pattern(f"{self._shards}/Split-train/*").total // BATCH,
            )
            loop = TrainingLoop(step)

        def read(step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
            order = TrainingOrder(SEED).for_worker(step, part)
            batches = self._dataset("train", part.get_per_replica_batch_size(BATCH), reader, order)
            replicas = part.num_replicas_in_sync // part.num_input_pipelines
            return batches.enumerate(order.start).map(_dying(kill_at, replicas))

        with TrainingLog(str(self._target / "logs" / name)) as log:
            done = loop.fit(
                read,
                lambda: self._dataset("eval", BATCH, reader),
                log=log,
                checkpoint_dir=str(self._target / "checkpoints" / name),
            )
        times = (RATE, INPUT_WAIT_FRACTION)
        measured = {metric: v for metric, v in done.history.items() if metric not in times}
        weights = {str(number): weight for number, weight in enumerate(model.get_weights())}
        np.savez(self._target / f"{name}.npz", history=json.dumps(measured), **weights)

    def _dataset(
        self, split: str, size: int, reader: Any, order: TrainingOrder | None = None
    ) -> tf.data.Dataset:
        return make_dataset(
            Shards.of_pattern(f"{self._shards}/Split-{split}/*"),
            config=TransformConfig(size=SIZE),
            feature_spec=FEATURE_SPEC,
            batch_size=size,
            options=InputConfig(reader=reader, cache="none", prefetch=1),
            order=order,
        )


def _dying(kill_at: int | None, replicas: int) -> Any:
    def die(number: Any) -> Any:
        if kill_at is not None and number >= kill_at * replicas:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.int64(0)

    def tap(number: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> Any:
        with tf.control_dependencies([tf.numpy_function(die, [number], tf.int64)]):
            return tf.identity(batch[0]), batch[1]

    return tap


def main(shards: str, target: str, *names: str) -> None:
    tf.config.experimental.enable_op_determinism()
    if names != ("workers",):
        [cpu] = tf.config.list_physical_devices("CPU")
        logical = [tf.config.LogicalDeviceConfiguration()] * 4
        tf.config.set_logical_device_configuration(cpu, logical)
    for name in names:
        kind, _, devices = name.partition("-")
        training = Training(shards, Path(target), _strategy(devices))
        if kind in ("whole", "killed"):
            dies = kind == "killed" and not list(Path(target).glob(f"checkpoints/{name}/ckpt-*"))
            training.run(name, build=network, kill_at=8 if dies else None, **FULL)
        else:
            reader = "streamed" if kind == "streamed" else "indexed"
            training.run(name, build=plain, reader=reader, **PLAIN)


# Two strategies in one process would mistake the other's exchanges for their own.
@functools.cache
def _strategy(devices: str) -> tf.distribute.Strategy:
    """Return the strategy of the workers, or for a number of devices; 0: none at all."""
    if not devices:
        return find_strategy(TrainingConfig())
    if devices == "0":
        return tf.distribute.get_strategy()
    if devices == "1":
        return tf.distribute.OneDeviceStrategy("CPU:0")
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(int(devices))])


if __name__ == "__main__":
    main(*sys.argv[1:])
