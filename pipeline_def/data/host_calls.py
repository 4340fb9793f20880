"""Calls from tf.data's threads into Python, none of which may be under way when Python exits.

A thread that wants the interpreter's lock from then on never gets it, and the iterator that is
removed waits for that thread for ever: a process that stops in the middle of training would hang.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

# At the end: how long no call may have come, and how long to wait for that at most.
_QUIET_SECONDS, _PATIENCE_SECONDS = 0.1, 10.0


class _Calls:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._latest = 0.0
        self._closing = False

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            with self._lock:
                self._latest = time.monotonic()
                if self._closing:
                    raise RuntimeError("Python is exiting")
                self._running += 1
            try:
                return function(*arguments)
            finally:
                with self._lock:
                    self._running -= 1

        return call

    def close(self) -> None:
        with self._lock:
            self._closing = True
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end and not self._is_quiet():
            time.sleep(_QUIET_SECONDS / 4)

    def _is_quiet(self) -> bool:
        return not self._running and time.monotonic() - self._latest > _QUIET_SECONDS


@functools.cache
def _calls() -> _Calls:
    calls = _Calls()
    atexit.register(calls.close)
    return calls


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, for `tf.numpy_function`; once Python exits, it fails and is waited for."""
    return _calls().guard(function)
