"""Write plans in processes: Python's work on one file then does not hold up other threads.

Run as a program, this module is a server that loads neither TensorFlow nor Beam and forks the
processes. A fork of the run itself would copy locks that threads of TensorFlow and Beam hold.
multiprocessing's forkserver would also import the running script in each process, look for modules
in the current folder first, and take 0.1 s longer.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

from components.contract.errors import ResourceError
from components.images.tensorflow_decoder import Decoder, run_here, run_with
from components.ingest.plan_work import IngestJob, write_plan
from components.storage.artifact_files import on_disk

Answer = Callable[[Decoder, bytes], Any]

MIN_FILES = 10_000
"""Number of files from which processes pay off. Starting them takes 0.4 s of CPU time, in which a
thread ingests 6,000 small files; two processes ingest twice as many per second as two threads."""

# Messages of a process: a plan is written; an error and its traceback; a number of further files
# is done; a question to TensorFlow with the bytes of a file, to which a reply is expected.
_DONE, _FAILED, _COUNT, _ASK = "done", "failed", "count", "ask"
_REPORT_EVERY = 64


def are_worth_it(job: IngestJob) -> bool:
    """Return whether processes, rather than threads, should write the plans of a job.

    Only on disk: threads wait for a bucket just as well, with one pool of connections, and writing
    to a bucket would load TensorFlow in each process.
    """
    local = on_disk(job.folder) and on_disk(job.examples_uri)
    return local and job.config.workers > 1 and job.total >= MIN_FILES


class PlanProcesses:
    """One process per thread of the job; each writes one plan at a time."""

    def __init__(self, job: IngestJob, answer: Answer = run_here) -> None:
        """Start the processes; `answer` runs TensorFlow for them in this process."""
        self._job, self._answer = job, answer
        pipes = [Pipe() for _ in range(job.config.workers)]
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        for ours, _ in pipes:
            self._idle.put(ours)
        self._server = _start_server([theirs.fileno() for _, theirs in pipes])
        for _, theirs in pipes:
            theirs.close()
        with self._explaining_end():
            pickle.dump(job, self._input)
            self._input.flush()

    @property
    def _input(self) -> IO[bytes]:
        assert self._server.stdin
        return self._server.stdin

    def write_plan(self, number: int) -> None:
        """Have an idle process write a plan, and wait until it is written.

        Raises:
            ResourceError: the system has killed the process.
        """
        connection = self._idle.get()
        try:
            with self._explaining_end():
                connection.send(number)
            self._wait_for_plan(connection)
        finally:
            self._idle.put(connection)

    def _wait_for_plan(self, connection: Connection) -> None:
        while True:
            with self._explaining_end():
                kind, value = connection.recv()
            if kind == _DONE:
                return
            if kind == _FAILED:
                error, trace = value
                raise error from RuntimeError(trace)
            if kind == _COUNT:
                self._job.count(value)
            else:
                try:
                    reply = self._answer(*value)
                except Exception as error:  # Any error rejects the file, as in this process.
                    reply = _portable(error)
                with self._explaining_end():
                    connection.send(reply)

    @contextlib.contextmanager
    def _explaining_end(self) -> Iterator[None]:
        """Explain why a process no longer sends or receives anything."""
        try:
            yield
        except (EOFError, OSError) as error:
            status = self._server.wait()
            if status != -signal.SIGKILL:
                raise RuntimeError(f"A process of ingest ended with status {status}.") from error
            raise ResourceError(
                f"The system killed a process of ingest, probably because memory ran out: set "
                f"ingest.threads to fewer than {self._job.config.workers}, or free memory, and run "
                f"again."
            ) from error

    def close(self) -> None:
        """End the processes, which must be idle."""
        while not self._idle.empty():
            self._idle.get().close()
        with contextlib.suppress(OSError):  # The server may end before it has read the job.
            self._input.close()
        self._server.wait()


def _portable(error: Exception) -> Exception:
    """Return the error if it can be pickled, else a RuntimeError with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # Each class pickles in its own way.
        return RuntimeError(str(error))
    return error


def _start_server(descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    # NumPy would start a thread for each core, which hinder a fork.
    variables = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *map(str, descriptors)],
        env={**os.environ, **variables},
        # This pipe closes when the run ends, even by SIGKILL, and ends the processes.
        stdin=subprocess.PIPE,
        pass_fds=descriptors,
        # Ctrl-C on a terminal is for the run alone.
        start_new_session=True,
    )


def _main(arguments: Sequence[str]) -> int:
    """Fork a process for each socket; return 0, or end by the signal that killed a process."""
    job: IngestJob = pickle.load(sys.stdin.buffer)
    descriptors = set(map(int, arguments))
    # Keeps the garbage collector from touching, and thereby copying, what the forks share.
    gc.freeze()
    for descriptor in descriptors:
        if not os.fork():
            _run_fork(descriptor, descriptors - {descriptor}, job)
    for descriptor in descriptors:
        os.close(descriptor)
    for _ in descriptors:
        status = os.waitstatus_to_exitcode(os.wait()[1])
        if status < 0:
            os.kill(os.getpid(), -status)
    return 0


def _run_fork(descriptor: int, others: Iterable[int], job: IngestJob) -> NoReturn:
    """Write plans until the connection closes."""
    for other in others:
        os.close(other)
    threading.Thread(target=_end_with_run, daemon=True).start()
    status = 1
    try:
        with contextlib.suppress(EOFError, ConnectionError):
            _serve(Connection(descriptor), job)
        status = 0
    finally:
        os._exit(status)


def _end_with_run() -> None:
    """Exit as soon as standard input closes, so that nothing is written after the run."""
    os.read(0, 1)
    os._exit(1)


def _serve(connection: Connection, job: IngestJob) -> NoReturn:
    """Write the plans whose numbers arrive."""
    counted = 0

    def ask(question: Decoder, data: bytes) -> Any:
        connection.send((_ASK, (question, data)))
        answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def count(files: int) -> None:
        nonlocal counted
        counted += files
        if counted % _REPORT_EVERY == 0:
            connection.send((_COUNT, _REPORT_EVERY))

    run_with(ask)
    while True:
        number: int = connection.recv()
        counted = 0
        try:
            write_plan(number, job, count)
        except Exception as error:
            connection.send((_FAILED, (_portable(error), traceback.format_exc())))
        else:
            if rest := counted % _REPORT_EVERY:
                connection.send((_COUNT, rest))
            connection.send((_DONE, None))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
