"""A lock between processes, which the system releases when its holder ends, even by SIGKILL."""

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator

from components.contract.errors import StorageError

LOCK_FILE = ".lock"
"""In the output folder, locked by a run while it writes."""

_PAUSE = 0.2
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def locked(path: str, subject: str, *, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the file at `path` while the context is open; wait for its holder first.

    Where the file system has no locks, the context opens without one. The file is kept.

    Args:
        path: path of the file.
        subject: what the lock protects, such as "the output folder /out".
        say: called with a sentence on why the lock has to wait, or cannot be had.
    """
    descriptor = _open(path, subject)
    try:
        _take(descriptor, subject, say)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"Process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        # Releases the lock, unless child processes still write.
        os.close(descriptor)


def is_locked(path: str) -> bool:
    """Return whether another process may hold the lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open(path: str, subject: str) -> int:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            # Another user of a shared folder has created it.
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
                    f"The file system of {subject} does not support locks ({error.strerror}): make "
                    "sure that nothing else writes there at the same time."
                )
                return
        if not waiting:
            holder = os.pread(descriptor, 300, 0).decode(errors="replace") or "Another process"
            say(f"{holder} is writing to {subject}: waiting until it has ended.")
            waiting = True
        # A blocking call would delay signals.
        time.sleep(_PAUSE)
