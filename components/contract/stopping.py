"""What Ctrl-C and SIGTERM do: one sentence and the status that a shell expects, at any moment.

Nothing is unwound. A `KeyboardInterrupt` that is raised within Beam, TensorFlow or an import is
swallowed, wrapped, or waits for threads that never end; and what a run has begun must outlive a
kill in any case. This file is imported before all others, so it imports hardly anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The main thread may be within C++, for minutes where a graph is compiled.
_PATIENCE = 1.0
# On a terminal: to the beginning of an empty line, and the cursor that a bar has hidden.
_RESTORE = b"\r\x1b[2K\x1b[?25h"

_acts: list[Callable[[], str | None]] = []


@contextlib.contextmanager
def before_stopping(act: Callable[[], str | None]) -> Iterator[None]:
    """Have `act` called when the process is stopped while the context is open.

    Args:
        act: returns the sentence to end with, if it knows a better one.
    """
    _acts.append(act)
    try:
        yield
    finally:
        _acts.remove(act)


def stop_with(sentence: str) -> None:
    """From now on end with a sentence on standard error, and with 130 or 143.

    Args:
        sentence: such as "runner.py: stopped."
    """
    # Still the terminal when a run sends its standard error into a log.
    output, errors = os.dup(1), os.dup(2)
    owner = os.getpid()

    def stop(number: int, _: FrameType | None = None) -> None:
        # A child that was forked says nothing.
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
    """Give the signals back to Python: a server ends what has begun before it stops."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ignore() -> None:
    for number in _SIGNALS:
        # Only the main thread may.
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
    """Stop when the main thread, in which Python handles signals, is too busy to do so."""
    while number := os.read(reader, 1):
        if number[0] in _SIGNALS:
            time.sleep(_PATIENCE)
            stop(number[0])
