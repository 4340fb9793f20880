"""Write plans in processes: Python's work on one file then does not hold up other threads.

Run as a program, this module is such a process, which loads neither TensorFlow nor Beam. A fork of
the run itself would copy locks that threads of TensorFlow and Beam hold. multiprocessing would also
import the running script in each process, and look for modules in the current folder first.
"""

import contextlib
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from logging.handlers import QueueHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from components.contract.artifact_files import on_disk
from components.contract.errors import ResourceError
from components.images.tensorflow_decoder import Decoder, Run, run_here, run_with
from components.ingest.plan_writer import IngestJob, write_plan
from components.storage import retry

MIN_FILES = 10_000
"""Number of files from which processes pay off. Starting them takes 0.4 s of CPU time, in which a
thread ingests 6,000 small files; two processes ingest twice as many per second as two threads."""
# Beam takes 0.3 s of CPU time to start, in which a thread checks 500 photographs or copies 50,000
# small records.
_FEW_UNREAD, _FEW_FILES = 500, 50_000

# Messages of a process: a plan is written, after so many retries; an error and its traceback; a
# number of further files is done; a line of the log; a question to TensorFlow with the bytes of a
# file, to which a reply is expected.
_DONE, _FAILED, _COUNT, _LOG, _ASK = "done", "failed", "count", "log", "ask"
_REPORT_EVERY = 64


def are_worth_it(job: IngestJob) -> bool:
    """Return whether processes, rather than threads, should write the plans of a job.

    Only for output on disk: writing to a bucket would load TensorFlow in each process.
    """
    local = on_disk(job.examples_uri)
    return local and job.config.workers > 1 and job.unread >= MIN_FILES


def is_quick(job: IngestJob) -> bool:
    """Return whether so little is new on disk, or to be moved, that Beam would take longer."""
    local = on_disk(job.folder) and on_disk(job.examples_uri)
    few = job.unread <= _FEW_UNREAD and job.total <= _FEW_FILES
    return local and few and (job.has_grown or job.again)


class _Process:
    """A process that writes plans, and the connection to it."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.popen = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
            # NumPy would start a thread for each core in each process.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)},
            # This pipe closes when the run ends, even by SIGKILL, and ends the process.
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            # Ctrl-C on a terminal is for the run alone.
            start_new_session=True,
        )
        theirs.close()

    def send(self, message: Any) -> None:
        with self._explaining_end():
            self.connection.send(message)

    def receive(self) -> Any:
        with self._explaining_end():
            return self.connection.recv()

    @contextlib.contextmanager
    def _explaining_end(self) -> Iterator[None]:
        """Explain why the process no longer sends or receives anything."""
        try:
            yield
        except (EOFError, OSError) as error:
            status = self.popen.wait()
            if status != -signal.SIGKILL:
                raise RuntimeError(f"A process of ingest ended with status {status}.") from error
            raise ResourceError(
                "The system killed a process of ingest, probably because memory ran out: set "
                "ingest.threads to a smaller number, or free memory, and run again."
            ) from error

    def end(self) -> None:
        """End the process, which must be idle."""
        self.connection.close()
        self.popen.communicate()


class PlanProcesses:
    """One process per thread of the job; each writes one plan at a time."""

    def __init__(self, job: IngestJob, answer: Run = run_here) -> None:
        """Start the processes; `answer` runs TensorFlow for them in this process."""
        self._job, self._answer = job, answer
        self._processes = [_Process() for _ in range(job.config.workers)]
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        for process in self._processes:
            process.send(job)
            self._idle.put(process)

    def write_plan(self, number: int) -> None:
        """Have an idle process write a plan, and wait until it is written.

        Raises:
            ResourceError: the system has killed the process.
        """
        process = self._idle.get()
        try:
            process.send(number)
            self._wait_for_plan(process)
        finally:
            self._idle.put(process)

    def _wait_for_plan(self, process: _Process) -> None:
        while True:
            kind, value = process.receive()
            if kind == _DONE:
                retry.add_retries(value)
                return
            if kind == _FAILED:
                error, trace = value
                raise error from RuntimeError(trace)
            if kind == _COUNT:
                self._job.count(value)
            elif kind == _LOG:
                logging.getLogger(value.name).handle(value)
            else:
                try:
                    reply = self._answer(*value)
                except Exception as error:  # Any error rejects the file, as in this process.
                    reply = _portable(error)
                process.send(reply)

    def close(self) -> None:
        """End the processes, which must be idle."""
        for process in self._processes:
            process.end()


def _portable(error: Exception) -> Exception:
    """Return the error if it can be pickled, else a RuntimeError with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # Each class pickles in its own way.
        return RuntimeError(str(error))
    return error


def _end_with_run() -> None:
    """Exit as soon as standard input closes, so that nothing is written after the run."""
    os.read(0, 1)
    os._exit(1)


class _Sender(QueueHandler):
    """Sends messages, and each line of the log, to the run."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(queue.SimpleQueue())
        self.connection = connection
        # The thread that waits for a bucket logs its retries.
        self._sending = threading.Lock()

    def send(self, kind: str, value: Any) -> None:
        with self._sending:
            self.connection.send((kind, value))

    def enqueue(self, record: logging.LogRecord) -> None:
        self.send(_LOG, record)


def _write_plans(sender: _Sender) -> NoReturn:
    """Write the plans whose numbers arrive."""
    receive, send = sender.connection.recv, sender.send
    job: IngestJob = receive()
    counted = 0

    def ask(question: Decoder, data: bytes) -> Any:
        send(_ASK, (question, data))
        answer = receive()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def count(files: int) -> None:
        nonlocal counted
        counted += files
        if counted % _REPORT_EVERY == 0:
            send(_COUNT, _REPORT_EVERY)

    run_with(ask)
    while True:
        number: int = receive()
        counted, retries = 0, retry.count_retries()
        try:
            write_plan(number, job, count)
        except Exception as error:
            send(_FAILED, (_portable(error), traceback.format_exc()))
        else:
            if rest := counted % _REPORT_EVERY:
                send(_COUNT, rest)
            send(_DONE, Counter(retry.count_retries()) - Counter(retries))


if __name__ == "__main__":
    threading.Thread(target=_end_with_run, daemon=True).start()
    run = _Sender(Connection(int(sys.argv[1])))
    logging.getLogger().addHandler(run)
    with contextlib.suppress(EOFError, ConnectionError):
        _write_plans(run)
