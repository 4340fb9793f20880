"""Same seed, same weights bit for bit: where it is on, and what it costs."""

from __future__ import annotations

import logging

import tensorflow as tf
import tf_keras

from pipeline_def.config.training import TrainingConfig

_LOGGER = logging.getLogger(__name__)


def set_determinism(config: TrainingConfig, strategy: tf.distribute.Strategy) -> None:
    """Seed everything, and make operations deterministic where `training.deterministic` says so.

    Unset, that is everywhere but on a GPU or TPU. To be called before the model is built; what
    another training has switched on in the same process stays on.

    Args:
        config: of the training.
        strategy: under which it runs.
    """
    tf_keras.utils.set_random_seed(config.seed)
    on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    accelerated = on_tpu or bool(tf.config.get_visible_devices("GPU"))
    wanted = not accelerated if config.deterministic is None else config.deterministic
    if not wanted:
        return
    if accelerated:
        _LOGGER.info(
            "training.deterministic is on: slower algorithms for convolutions are used, and an "
            "operation that has none which is deterministic ends the training with its name."
        )
    # Otherwise threads add up gradients in the order in which they happen to finish.
    tf.config.experimental.enable_op_determinism()
