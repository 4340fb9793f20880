"""A lock between processes, which the system takes back from one that has ended, however it did."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator

from components.contract.errors import StorageError

_PAUSE = 0.2
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def locked(path: str, subject: str, *, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a file while the context is open; wait for whoever holds it.

    Where the file system has no locks, the context opens without one.

    Args:
        path: of the file, which is made, and stays; on a disk of this machine, or mounted.
        subject: what the lock is for, such as "the output folder /out".
        say: is told why it has to wait, or that there are no locks; a sentence.

    Raises:
        StorageError: the file cannot be made.
    """
    descriptor = _open(path, subject)
    try:
        _take(descriptor, subject, say)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"Process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        # Closes the lock, too; children that still write keep it until they have ended.
        os.close(descriptor)


def _open(path: str, subject: str) -> int:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            # Of another user, who shares the folder.
            return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise StorageError(f"Cannot lock {subject}: {path}: {error.strerror}.") from error


def _take(descriptor: int, subject: str, say: Callable[[str], None]) -> None:
    waiting = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in _BUSY:
                say(
                    f"The file system of {subject} has no locks ({error.strerror}): make sure that "
                    "nothing else writes there at the same time."
                )
                return
        if not waiting:
            holder = os.pread(descriptor, 300, 0).decode(errors="replace") or "Another process"
            say(f"{holder} is writing to {subject}: waiting until it has ended.")
            waiting = True
        # Not one long call, in which a signal could go unheard.
        time.sleep(_PAUSE)
