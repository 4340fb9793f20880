"""Writes plans in a process of its own, one after the other, as `plan_processes.py` asks.

Run as `python -m components.ingest.plan_server DESCRIPTOR`, of a socket.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from components.images.tensorflow_decoder import Question, answer_by
from components.ingest.plan_work import IngestJob, write_plan

DONE, FAILED, COUNT, ASK = "done", "failed", "count", "ask"
"""What is sent, and a value with it: a plan is written; an error and its traceback; so many files
more are done; a question to TensorFlow and the bytes of a file, which wait for its answer."""

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


def serve(connection: Connection) -> None:
    """Write the plans whose numbers arrive; before them comes the job."""

    def ask(question: Question, data: bytes) -> Any:
        connection.send((ASK, (question, data)))
        answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    answer_by(ask)
    job: IngestJob = connection.recv()
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


def _end_with_parent() -> None:
    """End as soon as standard input closes: nothing is written after the run that asked for it."""
    os.read(0, 1)
    os._exit(1)


def _main(arguments: list[str]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):
        serve(Connection(int(arguments[0])))


if __name__ == "__main__":
    _main(sys.argv[1:])
