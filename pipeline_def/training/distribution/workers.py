"""The worker processes of one training: who they are, what they agree on, and where each writes.

All of them run the whole Trainer step with the same inputs, and all do the same at the same time:
even reading a variable may be an exchange with the others. Only the chief's files are kept.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from components.contract.errors import ConfigurationError, WorkerError
from pipeline_def.training.distribution.chief import CHIEF, WORKER, is_first

VARIABLE = "TF_CONFIG"
_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'

# What TensorFlow raises when another worker is gone, and what its texts then speak of: a store that
# does not answer raises the same classes.
_LOST = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    *(tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError, tf.errors.InternalError),
)
_SIGNS = ("ollective", "oordination", "/job:worker", "/job:chief", "eartbeat")


@dataclass(frozen=True)
class Cluster:
    """The processes that train together, as the environment variable TF_CONFIG describes them.

    Source: "TF_CONFIG" in TensorFlow's guide to distributed training.
    """

    addresses: Mapping[str, tuple[str, ...]]
    """Kind of process, chief or worker → host:port of each."""
    kind: str
    """Kind of this process."""
    index: int
    """Its number among those of its kind."""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Cluster | None:
        """Read TF_CONFIG; None if it is not set.

        Raises:
            ConfigurationError: it does not say who trains together, and which one this is.
        """
        text = (os.environ if environment is None else environment).get(VARIABLE)
        if not text:
            return None
        try:
            facts = json.loads(text)
            addresses = {kind: tuple(hosts) for kind, hosts in facts["cluster"].items()}
            task = facts["task"]
            cluster = cls(addresses, task["type"], int(task["index"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"TF_CONFIG is {text!r}: it must be JSON such as {_EXAMPLE}."
            ) from error
        cluster._check()
        return cluster

    @property
    def size(self) -> int:
        """Number of processes."""
        return sum(map(len, self.addresses.values()))

    def _check(self) -> None:
        strange = sorted(self.addresses.keys() - {CHIEF, WORKER})
        known = self.addresses.get(self.kind, ())
        if strange:
            problem = f"it names a {strange[0]}, and only a chief and workers train here"
        elif len(self.addresses.get(CHIEF, ())) > 1:
            problem = "it names more than one chief"
        elif not 0 <= self.index < len(known):
            problem = f"its task is {self.kind} {self.index}, of which its cluster has {len(known)}"
        elif not all(_is_address(host) for hosts in self.addresses.values() for host in hosts):
            problem = "its cluster must name each process as host:port"
        else:
            return
        raise ConfigurationError(f"TF_CONFIG cannot be used: {problem}.")


def _is_address(text: Any) -> bool:
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    return bool(host) and port.isascii() and port.isdigit()


def has_workers(strategy: tf.distribute.Strategy) -> bool:
    """Return whether other processes train with this one under `strategy`."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether the files that this process writes are those that are kept."""
    if not has_workers(strategy):
        return True
    resolver = strategy.cluster_resolver
    kinds = resolver.cluster_spec().jobs
    return is_first(resolver.task_type, resolver.task_id, kinds=kinds)


def own_directory(directory: str, strategy: tf.distribute.Strategy) -> str:
    """Name the folder where this process writes what the chief writes into `directory`.

    Every worker takes part in the saving of variables, so every one must write. Those that are not
    the chief do so in a temporary folder, which is removed as the process ends.
    """
    if is_chief(strategy):
        return directory
    folder = tempfile.mkdtemp(prefix="worker-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return os.path.join(folder, os.path.basename(directory.rstrip("/")))


def mean_of_workers(value: float, strategy: tf.distribute.Strategy) -> float:
    """Return the mean of what each worker gives, which is the same number on all of them.

    Whatever decides what is run next must not come from one worker's clock or disk: two workers
    that decide otherwise wait for each other for ever.
    """
    if not has_workers(strategy):
        return value
    values = strategy.experimental_distribute_values_from_function(
        lambda _: tf.constant(value, tf.float64)
    )
    return float(strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None))


def settle(variables: Iterable[tf.Variable], strategy: tf.distribute.Strategy) -> None:
    """Give every replica what a checkpoint of these variables has for all of them.

    Each replica keeps statistics of normalisation and sums of metrics for itself; what is saved,
    and exported, is their mean or sum. Otherwise evaluation would be of no model that is ever
    exported, and a training that goes on from a checkpoint would not equal one that just goes on.
    """
    if strategy.num_replicas_in_sync == 1:
        return
    for variable in variables:
        if variable.synchronization == tf.VariableSynchronization.ON_READ:
            variable.assign(variable.read_value())


def wait_for_workers(strategy: tf.distribute.Strategy) -> None:
    """Wait until every worker is here.

    At the end, because the chief's process holds the service that the others report to.
    """
    mean_of_workers(0.0, strategy)


def require_agreement(value: float, strategy: tf.distribute.Strategy, *, what: str) -> None:
    """Make sure that `what` is the same number, `value`, on every worker.

    Raises:
        ConfigurationError: it is not, because the workers do not see the same files.
    """
    mean = mean_of_workers(value, strategy)
    # Of three equal numbers, the mean may differ from them in its last bit.
    differs = abs(value - mean) > 1e-9 * abs(mean)
    # All workers raise, or none: one that went on would wait for the others.
    if mean_of_workers(float(differs), strategy):
        raise ConfigurationError(
            f"{what} is {value:g} on this worker and {mean:g} on average: all workers must read "
            "and write the same folders, on a shared disk or in a bucket."
        )


@contextlib.contextmanager
def watching_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Say in one sentence that another worker is gone, if that ends what is done in this block.

    TensorFlow notices at the next exchange: a process that died within a second, one that does not
    answer within some ten. A cluster cannot be joined again, so this process has to end, too.

    Raises:
        WorkerError: another worker is gone.
    """
    try:
        yield
    except _LOST as error:
        if not has_workers(strategy) or not any(sign in str(error) for sign in _SIGNS):
            raise
        raise WorkerError(
            "Another worker of this training has stopped or cannot be reached: its own log says "
            "why; start all workers again, and they go on from the last checkpoint."
        ) from error
