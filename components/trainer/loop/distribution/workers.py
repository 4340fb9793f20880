"""What the workers of a distributed training do together, and where each of them writes.

Every worker runs the whole Trainer component with the same inputs, and all do the same thing at the
same time: even reading a variable may be an exchange. Only the files of the chief are kept.
"""

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator

import tensorflow as tf

from components.contract.errors import ConfigurationError, WorkerError
from components.trainer.loop.distribution.cluster import Cluster

# TensorFlow raises these for a lost worker, but also for an unreachable store: the text decides.
_LOST_ERRORS = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    *(tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError, tf.errors.InternalError),
)
_LOST_TEXTS = ("ollective", "oordination", "/job:worker", "/job:chief", "eartbeat")


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
