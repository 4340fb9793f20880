"""Trials on several machines: the chief searches, and the workers of TF_CONFIG train its trials.

All of them read the same shards and share the folder of checkpoints, so that any machine can
continue any trial.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from components.contract.errors import UserError
from pipeline_def.training.distribution.cluster import Cluster
from pipeline_def.training.distribution.peer import SECONDS, Peer, accept, connect, listen
from pipeline_def.training.distribution.process_apart import (
    Receive,
    Send,
    describe_error,
    raise_sent,
)


class Worker:
    """A worker, as seen by the chief, with the methods of `ProcessApart`."""

    def __init__(self, peer: Peer) -> None:
        """Take over a connection."""
        self._peer = peer
        self.fileno = peer.fileno

    def send(self, message: Any) -> None:
        """Send a JSON value; it is lost if the worker has ended."""
        with contextlib.suppress(OSError):
            self._peer.send(message)  # `receive` says so.

    def receive(self) -> Any:
        """Wait for a JSON value; return None if the worker has ended.

        Raises:
            UserError: the worker has ended with it.
        """
        try:
            return raise_sent(self._peer.receive())
        except OSError:
            return None

    def stop(self) -> None:
        """Let the worker end."""
        self._peer.close()


@contextlib.contextmanager
def gather_workers(
    cluster: Cluster | None, *, seconds: float = SECONDS
) -> Iterator[tuple[Worker, ...]]:
    """Wait for all other processes of TF_CONFIG; they end when the context does.

    Raises:
        WorkerError: some are missing.
        ConfigurationError: a worker has another TF_CONFIG.
    """
    if not cluster or cluster.size == 1:
        yield ()
        return
    workers: dict[str, Worker] = {}
    with contextlib.ExitStack() as stack:
        connections = accept(
            stack.enter_context(listen(cluster.chief, backlog=cluster.size)),
            *(cluster, workers),
            seconds=seconds,
            others="workers",
            advice="their logs say why",
        )
        for name, peer in connections:
            stack.callback(peer.close)
            peer.wait_forever()
            workers[name] = Worker(peer)
        yield tuple(workers.values())


def serve(
    cluster: Cluster, answer: Callable[[Receive, Send], None], *, seconds: float = SECONDS
) -> None:
    """Let `answer` train trials on a worker, until the chief needs no more.

    Raises:
        UserError: the chief cannot be reached, or a user's mistake ends the search.
    """
    peer = connect(cluster.chief, seconds)

    def receive() -> Any:
        try:
            return raise_sent(peer.receive())
        except OSError as error:
            raise _Ended from error

    def send(message: Any) -> None:
        try:
            peer.send(message)
        except OSError as error:
            raise _Ended from error

    try:
        send(cluster.greeting)
        answer(receive, send)
    except UserError as error:
        with contextlib.suppress(_Ended):
            send(describe_error(error))
        raise
    except _Ended:
        pass
    finally:
        peer.close()


class _Ended(Exception):
    """The chief has closed the connection."""
