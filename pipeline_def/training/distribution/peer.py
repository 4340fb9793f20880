"""Connections between the processes that TF_CONFIG lists; needs no TensorFlow."""

import contextlib
import json
import socket
import time
from collections.abc import Collection, Iterator
from typing import Any, NoReturn

from components.contract.errors import ConfigurationError, WorkerError
from components.host.progress import report_progress
from pipeline_def.training.distribution.cluster import Cluster
from pipeline_def.training.distribution.process_apart import describe_error

SECONDS = 600.0
"""How long processes wait for each other."""
# Errors when the other side of a connection is not a worker, such as a port scanner.
_STRANGER = (OSError, ValueError, LookupError, TypeError)
_PAUSE = 1.0


class Peer:
    """A connection that carries one JSON value a line."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connection."""
        self._lines = connection.makefile("rw", encoding="utf-8")
        self._connection = connection

    def fileno(self) -> int:
        """Return the file descriptor, for a selector."""
        return self._connection.fileno()

    def wait_forever(self) -> None:
        """Wait for values without a limit, but notice a machine that is lost."""
        self._connection.settimeout(None)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, message: Any) -> None:
        """Send a value; raise `OSError` if the other side has closed the connection."""
        self._lines.write(json.dumps(message) + "\n")
        self._lines.flush()

    def receive(self) -> Any:
        """Return the next value; raise `OSError` if the other side has closed the connection."""
        if not (line := self._lines.readline()):
            raise ConnectionResetError("the connection was closed")
        return json.loads(line)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._lines.close()
        self._connection.close()


def listen(address: str, *, backlog: int) -> socket.socket:
    """Listen as the process of an address, host:port.

    Raises:
        ConfigurationError: the port cannot be used.
    """
    port = int(address.rpartition(":")[2])
    try:
        return socket.create_server(("", port), backlog=backlog)
    except OSError as error:
        raise ConfigurationError(
            f"TF_CONFIG lists this process as {address}, but port {port} cannot be used "
            f"({error.strerror}): end what uses it, or list another port on all machines."
        ) from error


def accept(
    server: socket.socket,
    cluster: Cluster,
    accepted: Collection[str],
    *,
    seconds: float,
    others: str,
    advice: str,
) -> Iterator[tuple[str, Peer]]:
    """Yield the name of each worker, and its connection, until the caller has accepted all.

    Args:
        server: as `listen` returns it.
        cluster: of the chief.
        accepted: names of the workers that the caller keeps; grows.
        seconds: for all of them, and for each to say something: a port scanner says nothing.
        others: what the workers are called in the error.
        advice: the end of the error, as a clause.

    Raises:
        WorkerError: some are missing.
        ConfigurationError: a worker has another TF_CONFIG.
    """
    ends, wanted = time.monotonic() + seconds, cluster.size - 1
    while len(accepted) < wanted:
        report_progress(done=len(accepted), total=wanted, unit="other workers")
        server.settimeout(max(0.01, ends - time.monotonic()))
        try:
            connection, _ = server.accept()
        except TimeoutError as error:
            raise WorkerError(
                f"{len(accepted)} of {wanted} other {others} have connected within "
                f"{seconds:.0f} s: {advice}."
            ) from error
        connection.settimeout(seconds)
        peer = Peer(connection)
        try:
            greeting = peer.receive()
            problem = cluster.find_problem(greeting, accepted)
        except _STRANGER:
            peer.close()
            continue
        if problem:
            refuse(peer, problem)
        yield greeting["name"], peer


def refuse(peer: Peer, problem: str) -> NoReturn:
    """Raise `ConfigurationError` here, and in the worker that asks `raise_sent`."""
    error = ConfigurationError(problem)
    with contextlib.suppress(OSError):
        peer.send(describe_error(error))
    peer.close()
    raise error


def connect(address: str, seconds: float) -> Peer:
    """Connect to the chief, which may start later.

    Raises:
        WorkerError: it cannot be reached.
    """
    host, _, port = address.rpartition(":")
    ends = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        except OSError as error:
            if time.monotonic() < ends:
                time.sleep(min(_PAUSE, seconds / 10))
                continue
            raise WorkerError(
                f"The chief at {address}, of TF_CONFIG, cannot be reached ({error}): start it with "
                f"the same options, unless it has finished."
            ) from error
        peer = Peer(connection)
        # The other steps may take hours.
        peer.wait_forever()
        return peer
