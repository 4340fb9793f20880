"""Runs a rung of the ladder in its own process, which is stopped while others are measured.

In one process a rung that is not measured goes on: it fills its buffers, and its threads share the
pools of TensorFlow and the lock of the interpreter with the rung whose turn it is.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.measuring.process import MeasurementError

_CAN_STOP = sys.platform == "linux"
# From prctl(2): the signal a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1

Answers = Mapping[str, Callable[..., Any]]
"""Name of a request → the function that serves it."""


class RungProcess:
    """Serves requests in a forked process, which is stopped between them.

    TensorFlow may be imported before, but must not have run: its threads would be missing.
    """

    def __init__(self, name: str, prepare: Callable[[], Answers]) -> None:
        """Fork; the process calls `prepare` before its first request."""
        context = get_context("fork")
        self._name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, prepare))
        self._process.start()
        theirs.close()

    def ask(self, question: str, *arguments: Any) -> Any:
        """Resume the process until it has served a request.

        Raises:
            MeasurementError: it has failed.
        """
        self._send(signal.SIGCONT)
        try:
            self._pipe.send((question, arguments))
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise MeasurementError(f"the process of {self._name} has ended") from error
        self._send(signal.SIGSTOP)
        if isinstance(answer, Exception):
            raise MeasurementError(f"{self._name}: {answer}") from answer
        return answer

    def end(self) -> None:
        """Kill the process; a stopped one takes no other signal."""
        self._process.kill()
        self._process.join()

    def _send(self, number: signal.Signals) -> None:
        if _CAN_STOP and self._process.pid and self._process.is_alive():
            os.kill(self._process.pid, number)


def _serve(pipe: Connection, prepare: Callable[[], Answers]) -> None:
    """Serve requests until the other end is closed."""
    if _CAN_STOP:
        # A stopped process would not notice that its parent has ended.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers: Answers = {}
    while True:
        try:
            question, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answers = answers or prepare()
            answer = answers[question](*arguments)
        except Exception as error:
            answer = MeasurementError(f"{type(error).__name__}: {error}")
        pipe.send(answer)
