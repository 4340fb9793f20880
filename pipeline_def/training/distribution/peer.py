"""Connections between the processes that TF_CONFIG lists; needs no TensorFlow."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sized
from typing import Any

from components.contract.errors import ConfigurationError, WorkerError
from components.contract.progress import report_progress

SECONDS = 600.0
"""How long processes wait for each other."""
NO_WORKER = (OSError, ValueError, LookupError, TypeError)
"""What fails if the other side of a connection is no worker, such as a port scanner."""
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
    server: socket.socket, accepted: Sized, wanted: int, *, seconds: float, others: str, advice: str
) -> Iterator[Peer]:
    """Yield each connection until the caller has accepted as many as wanted.

    Args:
        server: as `listen` returns it.
        accepted: grows with each connection that the caller keeps.
        wanted: its size at the end.
        seconds: for all of them, and for each to say something: a port scanner says nothing.
        others: what `wanted` counts, for the error.
        advice: the end of the error, as a clause.

    Raises:
        WorkerError: some are missing.
    """
    ends = time.monotonic() + seconds
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
        yield Peer(connection)


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
