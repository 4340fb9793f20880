"""Trainings on several logical CPUs, or as one of several workers, in a process of its own.

`python -m tests.trainer.loop.replica_trainings SHARDS TARGET NAME…` runs trainings by
name, and writes weights and metrics of each to TARGET/name.npz: logical devices and clusters must
be set up before TensorFlow does anything else.
"""

import contextlib
import functools
import json
import os
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
from components.trainer.loop.activations import Activations
from components.trainer.loop.strategy import find_strategy
from tests.trainer.input.shard_folder import SIZE, ShardFolder
from tests.trainer.loop.test_activations import Backbone, training_input
from tests.trainer.loop.test_loop import Training, linear, small

# Options with state, all of which a checkpoint has to restore.
FULL: dict[str, Any] = {
    "build": small,
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
    folder = Path(target)
    folder.mkdir(exist_ok=True)
    if "TF_CONFIG" in os.environ:
        # Which the workers share, to restore what the chief has saved.
        folder = folder.parent
    else:
        [cpu] = tf.config.list_physical_devices("CPU")
        logical = [tf.config.LogicalDeviceConfiguration()] * 4
        tf.config.set_logical_device_configuration(cpu, logical)
    if "plain-2" in names:
        _check_activations(ShardFolder(Path(shards), {}, {}))
    for name in names:
        kind, _, devices = name.partition("-")
        reader: Any = "streamed" if kind == "streamed" else "auto"
        options = FULL if kind in ("whole", "killed", "stopped") else PLAIN
        if not devices:
            # Those that can be stopped are not saved within an epoch, where replicas differ.
            options = {**options, "checkpoint_steps": 0}
        training = Training(
            ShardFolder(Path(shards), {}, {}),
            folder / name,
            input=InputConfig(reader=reader, cache="none"),
            **options,
        )
        if kind == "killed":
            with contextlib.suppress(tf.errors.UnknownError):
                training.run(8 * int(devices), _strategy(devices))
                raise AssertionError("It was not killed.")
        if kind == "stopped":
            training.run(None, _strategy(devices), stop=lambda _: True)
        weights, history = training.run(None, _strategy(devices))
        measured = {n: v for n, v in history.items() if n not in (RATE, INPUT_WAIT_FRACTION)}
        np.savez(Path(target, f"{name}.npz"), json.dumps(measured), *weights)


def _check_activations(folder: ShardFolder) -> None:
    """Check that replicas compute and take their parts of what one device computes and takes."""
    data, strategy = training_input(folder), _strategy("2")
    with strategy.scope():
        backbone = Backbone().model
    seen = Activations(backbone, data)
    for split in (data.train, data.evaluation):
        images, labels = zip(*data.read_in_order(split), strict=True)
        features, ids = seen.first_views(split)
        np.testing.assert_array_equal(ids, np.concatenate(labels))
        np.testing.assert_allclose(features, backbone(np.concatenate(images)), rtol=1e-3)
    parts, _ = next(
        iter(strategy.distribute_datasets_from_function(functools.partial(seen.read, 3)))
    )
    [(whole, _)] = seen.read(3, tf.distribute.InputContext()).take(1)
    joined = np.concatenate(strategy.experimental_local_results(parts))
    np.testing.assert_array_equal(joined, whole)


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
