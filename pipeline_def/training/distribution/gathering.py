"""How the chief of a run hands the training to workers, which wait until all other steps are done.

TensorFlow connects processes only before it computes anything, but earlier steps of the chief have
used it, so the chief trains in a fresh process, too. Until then a plain socket listens at its
address in TF_CONFIG, where workers fetch what the Trainer was given. Needs no TensorFlow.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from components.contract.errors import ConfigurationError, UserError, WorkerError
from pipeline_def.training.distribution.cluster import Cluster
from pipeline_def.training.distribution.peer import SECONDS, Peer, accept, connect, listen, refuse
from pipeline_def.training.distribution.process_apart import raise_sent
from pipeline_def.training.distribution.trainer_process import train_apart, train_here

_PAUSE = 1.0
# What `run_fn` reads of TFX's FnArgs.
_FIELDS = (
    *("train_files", "eval_files", "transform_graph_path", "hyperparameters"),
    *("serving_model_dir", "model_run_dir", "custom_config"),
)
_open: list["Gathering"] = []


class Gathering:
    """The chief's side: waits for all workers, and starts the training on each."""

    def __init__(self, cluster: Cluster, output: str, *, seconds: float = SECONDS) -> None:
        """Listen for workers.

        Raises:
            ConfigurationError: TF_CONFIG gives this process an address that it cannot have.
        """
        self._cluster, self._output, self._seconds = cluster, output, seconds
        self._server = listen(cluster.chief, backlog=cluster.size)

    @staticmethod
    def current() -> "Gathering | None":
        """Return the gathering of this process, if it is the chief of a run."""
        return _open[-1] if _open else None

    def train(self, fn_args: Any) -> None:
        """Train on all processes.

        Raises:
            WorkerError: some workers are missing.
            UserError: workers do not share the output, or training failed.
        """
        arguments = {name: getattr(fn_args, name) for name in _FIELDS}
        proof = Path(self._output, f".shared-{uuid.uuid4().hex}")
        proof.touch()
        peers: dict[str, Peer] = {}
        try:
            self._gather(peers, {"arguments": arguments, "proof": str(proof)})
            for peer in peers.values():
                peer.send({"start": True})
        finally:
            proof.unlink()
            for peer in peers.values():
                peer.close()
            self._server.close()
        train_apart(arguments)

    def _gather(self, peers: dict[str, Peer], task: Mapping[str, Any]) -> None:
        """Connect each worker, and let it check that it sees the same files."""
        connections = accept(
            *(self._server, self._cluster, peers),
            seconds=self._seconds,
            others="processes of TF_CONFIG",
            advice="start local_runner.py on each with the same options",
        )
        for name, peer in connections:
            try:
                peer.send(task)
                sees_files = peer.receive()
            except (OSError, ValueError):
                peer.close()
                continue
            if not sees_files:
                refuse(
                    peer,
                    f"{name} does not see the files in {self._output}: all processes need the same "
                    f"--output, on a disk that they share.",
                )
            peers[name] = peer

    def close(self) -> None:
        """Tell workers that have connected and wait that there is nothing to train."""
        with contextlib.suppress(OSError):
            self._server.settimeout(0)
            while True:
                connection, _ = self._server.accept()
                connection.settimeout(_PAUSE)
                peer = Peer(connection)
                with contextlib.suppress(OSError, ValueError):
                    peer.receive()
                    peer.send({"arguments": None})
                peer.close()
        self._server.close()


@contextlib.contextmanager
def gathering(cluster: Cluster | None, output: str) -> Iterator[None]:
    """Let the Trainer of a run within the context train on a cluster, if there is one."""
    if cluster is None:
        yield
        return
    if "://" in output:
        raise ConfigurationError(
            f"TF_CONFIG lists {cluster.size} processes, but output is {output}: training on "
            f"several machines needs an --output on a disk that they share."
        )
    os.makedirs(output, exist_ok=True)
    _open.append(Gathering(cluster, output))
    try:
        yield
    finally:
        _open.pop().close()


def take_part(cluster: Cluster) -> None:
    """Train with the chief, as a worker.

    Raises:
        UserError: the chief cannot be reached, or this process and the chief differ.
    """
    print(f"This is {cluster.name} of TF_CONFIG. Waiting for {cluster.chief} …", flush=True)
    arguments = fetch_task(cluster)
    if arguments is None:
        print("The chief took the model from its cache: there is nothing to train.")
        return
    print("Training …", flush=True)
    train_here(arguments)
    print("Done; the chief has the results.")


def fetch_task(cluster: Cluster, *, seconds: float = SECONDS) -> dict[str, Any] | None:
    """Wait for the chief; return what its Trainer was given, or None if it need not train.

    Raises:
        WorkerError: the chief cannot be reached, or has stopped.
        ConfigurationError: this process and the chief differ.
    """
    peer = connect(cluster.chief, seconds)
    try:
        peer.send(cluster.greeting)
        task = raise_sent(peer.receive())
        if task["arguments"] is None:
            return None
        peer.send(os.path.exists(task["proof"]))
        raise_sent(peer.receive())
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise WorkerError(
            f"The chief at {cluster.chief} has stopped before the training; its output says why."
        ) from error
    finally:
        peer.close()
    return dict(task["arguments"])
