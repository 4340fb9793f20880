"""Processes that write plans: what Python does for each file does not wait for other threads.

They are forks of a fresh interpreter that loads neither TensorFlow nor Beam; a fork of this process
would copy locks that threads of those hold. `plan_server.py` is what runs in them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from components.contract.errors import ResourceError
from components.images.tensorflow_decoder import Question, answer_here
from components.ingest import plan_server
from components.ingest.plan_server import ASK, COUNT, DONE, FAILED, KILLED, portable
from components.ingest.plan_work import IngestJob
from components.storage.artifact_files import on_disk

Answer = Callable[[Question, bytes], Any]

FEWEST = 10_000
"""Files that are worth processes. Their interpreter takes 0.4 s of CPU time to start, in which a
thread does 6,000 small files; two processes do twice as many a second."""


def are_worth_it(job: IngestJob) -> bool:
    """Say whether the plans of a job are done by processes rather than by threads.

    Only on disk: reading a bucket is waiting, which threads do as well, with one pool of
    connections; and writing to one would load TensorFlow in each process.
    """
    local = on_disk(job.folder) and on_disk(job.examples_uri)
    return local and job.config.workers > 1 and job.total >= FEWEST


class PlanProcesses:
    """As many processes as the job has threads, each of which does a plan at a time."""

    def __init__(self, job: IngestJob, answer: Answer = answer_here) -> None:
        """Do plans of `job`; `answer` does in this process what needs TensorFlow."""
        self._job, self._answer = job, answer
        # They wait, whatever default of sockets some library has set.
        pipes = [Pipe() for _ in range(job.config.workers)]
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        for ours, _ in pipes:
            self._idle.put(ours)
        self._server = _start([theirs.fileno() for _, theirs in pipes])
        for _, theirs in pipes:
            theirs.close()
        with self._at_work():
            pickle.dump(job, self._input)
            self._input.flush()

    @property
    def _input(self) -> IO[bytes]:
        assert self._server.stdin
        return self._server.stdin

    def write_plan(self, number: int) -> None:
        """Have a process write a plan, and return when it has.

        Raises:
            ResourceError: the system has killed the process.
        """
        connection = self._idle.get()
        try:
            with self._at_work():
                connection.send(number)
            self._wait_for_plan(connection)
        finally:
            self._idle.put(connection)

    def _wait_for_plan(self, connection: Connection) -> None:
        """Do what the process that writes a plan asks for, until it is done."""
        while True:
            with self._at_work():
                kind, value = connection.recv()
            if kind == DONE:
                return
            if kind == FAILED:
                error, trace = value
                raise error from RuntimeError(trace)
            if kind == COUNT:
                self._job.count(value)
            elif kind == ASK:
                answer = _try(self._answer, *value)
                with self._at_work():
                    connection.send(answer)

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Say how the process has ended that does not take or send anything any more."""
        try:
            yield
        except (EOFError, OSError) as error:
            status = self._server.wait()
            if abs(status) % KILLED != signal.SIGKILL:
                raise RuntimeError(f"A process of ingest ended with status {status}.") from error
            raise ResourceError(
                f"The system killed a process of ingest, as it does where memory is short: set "
                f"ingest.threads to fewer than {self._job.config.workers}, or free memory, and run "
                f"again."
            ) from error

    def close(self) -> None:
        """End the processes, none of which is at work any longer."""
        while not self._idle.empty():
            self._idle.get().close()
        with contextlib.suppress(OSError):  # Where it has ended before it has read the job.
            self._input.close()
        self._server.wait()


def _try(answer: Answer, question: Question, data: bytes) -> Any:
    try:
        return answer(question, data)
    except Exception as error:  # Whatever it is, the file is rejected, as it would be here.
        return portable(error)


def _start(descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start processes that find the same code as this one, wherever it was started."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # NumPy would start a thread for each core, which hinder a fork.
    threads = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", plan_server.__name__, *map(str, descriptors)],
        env={**os.environ, **threads},
        # They end when this pipe closes, which is when this process has ended, however it did.
        stdin=subprocess.PIPE,
        pass_fds=descriptors,
        # Ctrl-C on a terminal is for this process alone.
        start_new_session=True,
    )
