"""Writes plans in processes of its own, as `plan_processes.py` asks.

Run as `python -m components.ingest.plan_server DESCRIPTOR…`, of sockets: for each it forks a
process that writes one plan after the other. The job comes by the standard input.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from components.images.tensorflow_decoder import Question, answer_by
from components.ingest.plan_work import IngestJob, write_plan

DONE, FAILED, COUNT, ASK = "done", "failed", "count", "ask"
"""What is sent, and a value with it: a plan is written; an error and its traceback; so many files
more are done; a question to TensorFlow and the bytes of a file, which wait for its answer."""

KILLED = 128
"""A process that ends for a fork has as its status this and the number of the fork's signal."""

_COUNTED = 64


class _Counter:
    """Sends the number of files that are done, at every 64th and at the end of a plan."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self.files = connection, 0

    def add(self, files: int) -> None:
        self.files += files
        if self.files >= _COUNTED:
            self.send()

    def send(self) -> None:
        self._connection.send((COUNT, self.files))
        self.files = 0


def serve(connection: Connection, job: IngestJob) -> None:
    """Write the plans whose numbers arrive."""

    def ask(question: Question, data: bytes) -> Any:
        connection.send((ASK, (question, data)))
        answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    answer_by(ask)
    while True:
        number: int = connection.recv()
        counter = _Counter(connection)
        try:
            write_plan(number, job, counter.add)
        except Exception as error:
            connection.send((FAILED, (portable(error), traceback.format_exc())))
        else:
            if counter.files:
                counter.send()
            connection.send((DONE, None))


def portable(error: Exception) -> Exception:
    """Return the error itself if it survives being sent, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # What pickling raises is up to the class.
        return RuntimeError(str(error))
    return error


def _end_with_run() -> None:
    """End as soon as standard input closes: nothing is written after the run that asked for it."""
    os.read(0, 1)
    os._exit(1)


def _run_fork(descriptor: int, others: Iterable[int], job: IngestJob) -> NoReturn:
    """Write plans until nobody asks for another."""
    for other in others:
        os.close(other)
    threading.Thread(target=_end_with_run, daemon=True).start()
    status = 1
    try:
        with contextlib.suppress(EOFError, ConnectionError):
            serve(Connection(descriptor), job)
        status = 0
    finally:
        os._exit(status)


def _main(arguments: Sequence[str]) -> int:
    """Fork once all is imported; return 0, or how a fork has ended that a signal has killed."""
    job: IngestJob = pickle.load(sys.stdin.buffer)
    descriptors = set(map(int, arguments))
    # What is there will not be thrown away, and is not copied to be looked at.
    gc.freeze()
    for descriptor in descriptors:
        if not os.fork():
            _run_fork(descriptor, descriptors - {descriptor}, job)
    for descriptor in descriptors:
        os.close(descriptor)
    for _ in descriptors:
        status = os.waitstatus_to_exitcode(os.wait()[1])
        if status < 0:
            return KILLED - status
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
