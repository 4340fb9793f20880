"""Where training computes: devices, determinism, threads, and what several workers do together.

Everything after `find_strategy` is written once, for several workers, GPUs and the CPU.
Every worker runs the whole Trainer component with the same inputs, and all do the same thing at the
same time: even reading a variable may be an exchange. Only the files of the chief are kept.
"""

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
import tf_keras

from components.contract.errors import ConfigurationError, WorkerError
from components.host.machine import available_cpus, bound_cpus
from components.storage.folder import reason_of
from components.trainer.config.training import TrainingConfig
from components.trainer.loop.cluster import Cluster

_LOGGER = logging.getLogger(__name__)

# TensorFlow raises these for a lost worker, but also for an unreachable store: the text decides.
_LOST_ERRORS = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    *(tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError, tf.errors.InternalError),
)
_LOST_TEXTS = ("ollective", "oordination", "/job:worker", "/job:chief", "eartbeat")


def find_strategy(config: TrainingConfig) -> tf.distribute.Strategy:
    """Return the strategy for `training.accelerator`, and log the choice.

    Call it before TensorFlow computes anything in this process: workers must be connected, and GPUs
    hidden, before that.

    Raises:
        ConfigurationError: the accelerator is not available, or TF_CONFIG cannot be used.
    """
    cluster = Cluster.from_environment()
    kind = _choose(cluster) if config.accelerator == "auto" else config.accelerator
    if cluster:
        cluster.check(kind, config.minutes)
    strategy = _STRATEGIES[kind](cluster)
    name, replicas = type(strategy).__name__, strategy.num_replicas_in_sync
    _LOGGER.info("Training on %s with %d replica(s).", name, replicas)
    return strategy


def set_determinism(config: TrainingConfig, strategy: tf.distribute.Strategy) -> None:
    """Seed everything, and make operations deterministic if `training.deterministic` asks for it.

    Unset, it means everywhere but on a GPU. Call it before the model is built. What another
    training has switched on in the same process stays on.
    """
    tf_keras.utils.set_random_seed(config.seed)
    given = config.deterministic
    wanted = not is_accelerated(strategy) if given is None else given
    if wanted:
        # Otherwise threads add up gradients in the order in which they happen to finish.
        tf.config.experimental.enable_op_determinism()


def is_accelerated(strategy: tf.distribute.Strategy) -> bool:
    """Return whether a strategy computes on GPUs."""
    # The default strategy, which lists no devices, is that of CPUs.
    if not tf.distribute.has_strategy() and strategy is tf.distribute.get_strategy():
        return False
    return not all(":CPU:" in device for device in strategy.extended.worker_devices)


def limit_threads() -> None:
    """Start no more threads than the container's CPU quota, which TensorFlow does not know."""
    if available_cpus() < bound_cpus():
        # An earlier component in the same process may have started them.
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(available_cpus())
            tf.config.threading.set_inter_op_parallelism_threads(available_cpus())


def _choose(cluster: Cluster | None) -> str:
    """Return the accelerator that `auto` stands for on this machine."""
    if cluster and cluster.size > 1:
        return "workers"
    gpus = len(tf.config.list_physical_devices("GPU"))
    return ("cpu", "gpu", "mirrored")[min(gpus, 2)]


def _cpu(_: Cluster | None) -> tf.distribute.Strategy:
    if not tf.config.list_physical_devices("GPU"):
        return tf.distribute.get_strategy()
    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        # An earlier component in the same process has started them.
        return tf.distribute.OneDeviceStrategy("CPU:0")
    return tf.distribute.get_strategy()


def _gpu(_: Cluster | None) -> tf.distribute.Strategy:
    _require_gpu("gpu")
    # Unlike the default strategy, this one copies the next batch while a step is running.
    return tf.distribute.OneDeviceStrategy("GPU:0")


def _mirrored(_: Cluster | None) -> tf.distribute.Strategy:
    _require_gpu("mirrored")
    return tf.distribute.MirroredStrategy()


def _require_gpu(kind: str) -> None:
    if not tf.config.list_physical_devices("GPU"):
        raise ConfigurationError(
            f"training.accelerator is {kind}, but TensorFlow finds no GPU on this machine: choose "
            "cpu or auto, or check the output of `nvidia-smi`."
        )


def _workers(cluster: Cluster | None) -> tf.distribute.Strategy:
    if cluster is None or cluster.size < 2:
        raise ConfigurationError(
            "training.accelerator is workers, but TF_CONFIG lists no other process; whatever "
            "starts the workers sets it, such as the Trainer step on Kubeflow."
        )
    communication = tf.distribute.experimental.CommunicationImplementation
    # The choice of `AUTO`, and with it the order of sums, depends on TensorFlow's version.
    kind = communication.NCCL if tf.config.list_physical_devices("GPU") else communication.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
    _LOGGER.info("Waiting for the other %d processes of TF_CONFIG …", cluster.size - 1)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise ConfigurationError(
            "TF_CONFIG lists several processes, which must be connected before TensorFlow is used, "
            "but an earlier component of this process has used it: run the Trainer in a process of "
            "its own, as on Kubeflow."
        ) from error
    except tf.errors.OpError as error:
        raise ConfigurationError(
            f"Cannot connect the processes listed in TF_CONFIG: {reason_of(error)}."
        ) from error


_STRATEGIES: dict[str, Callable[[Cluster | None], tf.distribute.Strategy]] = {
    "cpu": _cpu,
    "gpu": _gpu,
    "mirrored": _mirrored,
    "workers": _workers,
}


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether the files of this process are the ones to keep."""
    cluster = Cluster.from_environment()
    return not has_workers(strategy) or cluster is None or cluster.is_chief


def own_directory(directory: str, strategy: tf.distribute.Strategy) -> str:
    """Return where this process writes what the chief writes into `directory`.

    All workers take part in saving variables, so all must write. Workers other than the chief write
    to a temporary folder that is removed when the process ends.
    """
    if is_chief(strategy):
        return directory
    folder = tempfile.mkdtemp(prefix="worker-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return os.path.join(folder, os.path.basename(directory.rstrip("/")))


def mean_of_workers(value: float, strategy: tf.distribute.Strategy) -> float:
    """Return the mean of `value` over the workers, the same number on each of them.

    Nothing that decides what runs next may depend on the clock or disk of one worker: workers that
    decide differently wait for each other forever.
    """
    if not has_workers(strategy):
        return value
    values = strategy.experimental_distribute_values_from_function(
        lambda _: tf.constant(value, tf.float64)
    )
    return float(strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None))


def sync_replicas(variables: Iterable[tf.Variable], strategy: tf.distribute.Strategy) -> None:
    """Give every replica the value that a checkpoint stores for all of them.

    Each replica keeps its own normalization statistics and metric sums; their mean or sum is saved
    and exported. Without this, evaluation would measure a model that is never exported, and a
    resumed training would differ from an uninterrupted one.
    """
    if strategy.num_replicas_in_sync == 1:
        return
    for variable in variables:
        if variable.synchronization == tf.VariableSynchronization.ON_READ:
            variable.assign(variable.read_value())


def require_agreement(value: float, strategy: tf.distribute.Strategy, *, what: str) -> None:
    """Check that `value` is the same number on every worker.

    Raises:
        ConfigurationError: the workers differ because they do not see the same files.
    """
    mean = mean_of_workers(value, strategy)
    # The mean of three equal numbers may differ from them in its last bit.
    differs = abs(value - mean) > 1e-9 * abs(mean)
    # Either all workers raise or none: one that continued would wait for the others.
    if mean_of_workers(float(differs), strategy):
        raise ConfigurationError(
            f"{what} is {value:g} on this worker and {mean:g} on average: all workers must read "
            "and write the same folders, on a shared disk or in a bucket."
        )


@contextlib.contextmanager
def report_lost_worker(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turn TensorFlow's error about a lost worker into one sentence.

    TensorFlow notices at the next exchange: a dead process within a second, an unresponsive one
    within about ten. A cluster cannot be rejoined, so this process has to end, too.

    Raises:
        WorkerError: another worker is lost.
    """
    try:
        yield
    except _LOST_ERRORS as error:
        if not has_workers(strategy) or not any(text in str(error) for text in _LOST_TEXTS):
            raise
        raise WorkerError(
            "Another worker of this training has stopped or cannot be reached; its log says why. "
            "Start all workers again to resume from the last checkpoint."
        ) from error


def has_workers(strategy: tf.distribute.Strategy) -> bool:
    """Return whether several processes share a training."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
