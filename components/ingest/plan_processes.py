"""Processes that write plans: what Python does for each file does not wait for other threads.

Each is a fresh interpreter that loads neither TensorFlow nor Beam; a fork of this process would
copy locks that threads of those hold. `plan_server.py` is what runs in them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from components.images.tensorflow_decoder import Question, answer_here
from components.ingest import plan_server
from components.ingest.plan_server import ASK, COUNT, DONE, FAILED, portable
from components.ingest.plan_work import IngestJob
from components.storage.artifact_files import on_disk

Answer = Callable[[Question, bytes], Any]

FEWEST = 10_000
"""Files that are worth processes. One takes 0.4 s of CPU time to start, in which a thread does
6,000 small files; two processes do twice as many a second."""


def are_worth_it(job: IngestJob) -> bool:
    """Say whether the plans of a job are done by processes rather than by threads.

    Only on disk: reading a bucket is waiting, which threads do as well, with one pool of
    connections; and writing to one would load TensorFlow in each process.
    """
    local = on_disk(job.folder) and on_disk(job.examples_uri)
    return local and job.config.workers > 1 and job.total >= FEWEST


class PlanProcesses:
    """As many processes as threads ask for at the same time; each is kept for the next plan."""

    def __init__(self, job: IngestJob, answer: Answer = answer_here) -> None:
        """Do plans of `job`; `answer` does in this process what needs TensorFlow."""
        self._job, self._answer = job, answer
        self._idle: list[_PlanProcess] = []
        self._lock = threading.Lock()

    def write_plan(self, number: int) -> None:
        """Have a process write a plan, and return when it has."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or _PlanProcess(self._job)
        try:
            process.write_plan(number, self._job.count, self._answer)
        except BaseException:
            process.close()
            raise
        with self._lock:
            self._idle.append(process)

    def close(self) -> None:
        """End the processes, none of which is at work any longer."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


class _PlanProcess:
    """A process that writes one plan after the other."""

    def __init__(self, job: IngestJob) -> None:
        # Waits, whatever default of sockets some library has set.
        self._connection, theirs = Pipe()
        with theirs:
            self._process = _start(theirs.fileno())
        self._send(job)

    def write_plan(self, number: int, count: Callable[[int], None], answer: Answer) -> None:
        self._send(number)
        while True:
            kind, value = self._receive()
            if kind == DONE:
                return
            if kind == FAILED:
                error, trace = value
                raise error from RuntimeError(trace)
            if kind == COUNT:
                count(value)
            elif kind == ASK:
                self._send(_try(answer, *value))

    def _send(self, message: Any) -> None:
        with self._at_work():
            self._connection.send(message)

    def _receive(self) -> tuple[str, Any]:
        with self._at_work():
            kind, value = self._connection.recv()
        return kind, value

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            status = self._process.wait()
            raise RuntimeError(
                f"A process of ingest ended with status {status}: is memory short?"
            ) from error

    def close(self) -> None:
        self._connection.close()
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _try(answer: Answer, question: Question, data: bytes) -> Any:
    try:
        return answer(question, data)
    except Exception as error:  # Whatever it is, the file is rejected, as it would be here.
        return portable(error)


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """Start a process that finds the same code as this one, wherever it was started."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", plan_server.__name__, str(descriptor)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        # It ends when this pipe closes, which is when this process has ended, however it did.
        stdin=subprocess.PIPE,
        pass_fds=[descriptor],
        # Ctrl-C on a terminal is for this process alone.
        start_new_session=True,
    )
