"""On Ctrl-C or SIGTERM, print one sentence and exit with the usual status, at any moment.

Nothing is unwound. Beam, TensorFlow and imports swallow or wrap a `KeyboardInterrupt`, or wait for
threads that never end; and an unfinished run must survive a kill in any case. This module is
imported first, so it imports little.
"""

import contextlib
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The main thread may be in C++ for minutes, such as while a graph compiles.
_GRACE_SECONDS = 1.0
# On a terminal: clear the line and show the cursor, which a progress bar hides.
_RESTORE = b"\r\x1b[2K\x1b[?25h"

_acts: list[Callable[[], str | None]] = []


@contextlib.contextmanager
def before_stopping(act: Callable[[], str | None]) -> Iterator[None]:
    """Call `act`, which may return a better last sentence, if the process is stopped meanwhile."""
    _acts.append(act)
    try:
        yield
    finally:
        _acts.remove(act)


def require_libraries(program: str) -> None:
    """End the process with a sentence if its Python has not the libraries of `program`."""
    if importlib.util.find_spec("pydantic") is None:
        sys.exit(
            f"{program}: error: {sys.executable} does not have the libraries of this program: "
            f"start it with `uv run {program}`."
        )


def stop_with(sentence: str) -> None:
    """From now on, end with a sentence such as "runner.py: stopped." and status 130 or 143."""
    # Copies still reach the terminal when a run redirects its standard error to a log.
    output, errors = os.dup(1), os.dup(2)
    owner = os.getpid()

    def stop(number: int, _: FrameType | None = None) -> None:
        # A forked child prints nothing.
        if os.getpid() == owner:
            _ignore()
            said = _act() or sentence
            for stream in (output, errors):
                if os.isatty(stream):
                    _write(stream, _RESTORE)
            _write(errors, f"{said}\n".encode())
        os._exit(128 + number)

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, stop), daemon=True).start()
    for number in _SIGNALS:
        signal.signal(number, stop)


def leave_to_server() -> None:
    """Restore Python's handlers: a server finishes its requests before it stops."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ignore() -> None:
    for number in _SIGNALS:
        # Only the main thread may set handlers.
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)


def _act() -> str | None:
    said = None
    for act in reversed(_acts):
        with contextlib.suppress(Exception):
            said = act() or said
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    return said


def _write(stream: int, text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(stream, text)


def _watch(reader: int, stop: Callable[[int], None]) -> None:
    """Stop if the main thread, in which Python handles signals, is too busy to do so."""
    while number := os.read(reader, 1):
        if number[0] in _SIGNALS:
            time.sleep(_GRACE_SECONDS)
            stop(number[0])
