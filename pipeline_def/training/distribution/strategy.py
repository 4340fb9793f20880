"""Where training runs: a TPU, several workers, several GPUs, one, or the CPU.

Everything after `find_strategy` is written once, for all of them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import tensorflow as tf

from components.contract.errors import ConfigurationError
from pipeline_def.config.training import TrainingConfig
from pipeline_def.training.distribution.workers import Cluster

_LOGGER = logging.getLogger(__name__)

_TPU = "TPU_NAME"


def find_strategy(config: TrainingConfig) -> tf.distribute.Strategy:
    """Return the strategy for `training.accelerator`, and log what was chosen and why.

    To be called before TensorFlow computes anything in this process: workers are connected, and
    GPUs hidden, before it starts, or not at all.

    Raises:
        ConfigurationError: what is asked for is not there, or TF_CONFIG cannot be used.
    """
    cluster, named = Cluster.of_environment(), config.accelerator
    kind, reason = (
        _choose(cluster) if named == "auto" else (named, f"training.accelerator is {named}")
    )
    if kind in ("cpu", "gpu", "mirrored"):
        _refuse_workers(kind, cluster)
    strategy = _STRATEGIES[kind](cluster)
    _LOGGER.info(
        "Training on %s (%d in sync), as %s.",
        *(type(strategy).__name__, strategy.num_replicas_in_sync, reason),
    )
    return strategy


def _choose(cluster: Cluster | None) -> tuple[str, str]:
    """Return what `auto` stands for here, and why."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    if name := os.environ.get(_TPU):
        return "tpu", f"TPU_NAME is {name}"
    if cluster and cluster.size > 1:
        return "workers", f"TF_CONFIG names {cluster.size} processes"
    if gpus > 1:
        return "mirrored", f"this machine has {gpus} GPUs"
    if gpus:
        return "gpu", "this machine has a GPU"
    return "cpu", "there is neither TPU_NAME, nor TF_CONFIG, nor a GPU"


def _refuse_workers(kind: str, cluster: Cluster | None) -> None:
    if cluster and cluster.size > 1:
        raise ConfigurationError(
            f"training.accelerator is {kind}, but TF_CONFIG names {cluster.size} processes, each "
            "of which would train alone and overwrite the others' files: choose workers or auto."
        )


def _cpu(_: Cluster | None) -> tf.distribute.Strategy:
    if not tf.config.list_physical_devices("GPU"):
        return tf.distribute.get_strategy()
    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        # An earlier step in the same process has started them; they are left alone all the same.
        return tf.distribute.OneDeviceStrategy("CPU:0")
    return tf.distribute.get_strategy()


def _gpu(_: Cluster | None) -> tf.distribute.Strategy:
    _require_gpu("gpu")
    # Unlike the default strategy, this one copies the next batch while a step is running.
    return tf.distribute.OneDeviceStrategy("GPU:0")


def _mirrored(_: Cluster | None) -> tf.distribute.Strategy:
    # Logical CPUs, which a test or a debugging session sets up, are as good as GPUs to it.
    cpus = tf.config.list_logical_devices("CPU")
    if len(cpus) > 1 and not tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy([device.name for device in cpus])
    _require_gpu("mirrored")
    return tf.distribute.MirroredStrategy()


def _require_gpu(kind: str) -> None:
    if not tf.config.list_physical_devices("GPU"):
        raise ConfigurationError(
            f"training.accelerator is {kind}, and TensorFlow finds no GPU on this machine: choose "
            "cpu or auto, or look at what `nvidia-smi` says."
        )


def _workers(cluster: Cluster | None) -> tf.distribute.Strategy:
    if cluster is None or cluster.size < 2:
        raise ConfigurationError(
            "training.accelerator is workers, but TF_CONFIG names no other process: it is set "
            "by whatever starts the workers, such as a TFJob of Kubeflow."
        )
    communication = tf.distribute.experimental.CommunicationImplementation
    # What `AUTO` may choose depends on TensorFlow's version, and with it the order of sums.
    kind = communication.NCCL if tf.config.list_physical_devices("GPU") else communication.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
    _LOGGER.info("Waiting for the other %d processes of TF_CONFIG …", cluster.size - 1)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise ConfigurationError(
            "TF_CONFIG names several processes, which must be connected before TensorFlow is "
            "used, and an earlier step of this process has used it: run the Trainer step in a "
            "process of its own, as on Kubeflow."
        ) from error
    except tf.errors.OpError as error:
        raise ConfigurationError(
            f"The processes that TF_CONFIG names cannot be connected: {_first_line(error)}."
        ) from error


def _tpu(_: Cluster | None) -> tf.distribute.Strategy:
    name = os.environ.get(_TPU)
    if not name:
        raise ConfigurationError(
            "training.accelerator is tpu, but TPU_NAME is not set: it is the name of the TPU, or "
            "`local` on the TPU's own machine."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(name)
    # The library that looks for it raises whatever it likes.
    except Exception as error:
        raise ConfigurationError(
            f"TPU_NAME is {name}, which cannot be used: {_first_line(error)}."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


_STRATEGIES: dict[str, Callable[[Cluster | None], tf.distribute.Strategy]] = {
    "cpu": _cpu,
    "gpu": _gpu,
    "mirrored": _mirrored,
    "workers": _workers,
    "tpu": _tpu,
}
