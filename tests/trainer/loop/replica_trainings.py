"""Trainings on several logical CPUs, or as one of several workers, in a process of its own.

`python -m tests.trainer.loop.replica_trainings SHARDS TARGET NAME…` runs trainings by
name, and writes weights and metrics of each to TARGET/name.npz: logical devices and clusters must
be set up before TensorFlow does anything else.
"""

import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.model_files import INPUT_WAIT_FRACTION, RATE
from components.host.startup import end_process
from components.images.options import TransformConfig
from components.trainer.config.input import InputConfig
from components.trainer.config.training import TrainingConfig
from components.trainer.loop.strategy import find_strategy
from tests.trainer.input.shard_folder import SIZE, ShardFolder
from tests.trainer.loop.test_loop import Training, linear, network

# Options with state, all of which a checkpoint has to restore.
FULL: dict[str, Any] = {
    "build": network,
    "optimizer": "adamw",
    "weight_decay": 1e-2,
    "checkpoint_steps": 3,
    "metric": "balanced_accuracy",
}
# Without batch normalization and random windows, which differ by replica.
PLAIN: dict[str, Any] = {
    "build": linear,
    "images": TransformConfig(size=SIZE),
    "optimizer": "sgd",
    "learning_rate": 0.05,
}


def main(shards: str, target: str, *names: str) -> None:
    if names != ("workers",):
        [cpu] = tf.config.list_physical_devices("CPU")
        logical = [tf.config.LogicalDeviceConfiguration()] * 4
        tf.config.set_logical_device_configuration(cpu, logical)
    for name in names:
        kind, _, devices = name.partition("-")
        reader: Any = "streamed" if kind == "streamed" else "indexed"
        training = Training(
            ShardFolder(Path(shards), {}, {}),
            Path(target, name),
            input=InputConfig(reader=reader, cache="none"),
            **(FULL if kind in ("whole", "killed") else PLAIN),
        )
        resumed = list(training.folder.glob("checkpoints/ckpt-*"))
        kill_at = 8 * int(devices) if kind == "killed" and not resumed else None
        weights, history = training.run(kill_at, _strategy(devices))
        measured = {n: v for n, v in history.items() if n not in (RATE, INPUT_WAIT_FRACTION)}
        np.savez(Path(target, f"{name}.npz"), json.dumps(measured), *weights)


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
    end_process(0)
