"""Write plans in processes: Python's work on one file then does not hold up other threads.

The processes load neither TFX nor Beam, and TensorFlow only for files that need its decoder.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import ModuleType

from components.contract.artifact_files import on_disk
from components.contract.errors import ResourceError
from components.ingest.write.plan_writer import IngestJob, write_plan
from components.storage import retry

MIN_FILES = 10_000
"""Number of files from which processes pay off. Starting them takes 0.4 s of CPU time, in which a
thread ingests 6,000 small files; two processes ingest twice as many per second as two threads."""
# Loading TensorFlow takes a process 4 s of CPU time, in which a thread ingests 10,000 small PNGs.
_FOR_TENSORFLOW = 10

# Environment of new processes: modules of the current folder do not come first, NumPy starts no
# thread for each core, the accelerator is for training, and only the run prints.
_VARIABLES = {
    "PYTHONSAFEPATH": "1",
    "PYTHONWARNINGS": "ignore",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_starting = threading.Lock()


def needs_processes(job: IngestJob) -> bool:
    """Return whether processes, instead of threads, write the plans of a job.

    Processes only write to a disk: for a bucket, each would load TensorFlow.
    """
    least = MIN_FILES * (_FOR_TENSORFLOW if job.for_tensorflow else 1)
    return on_disk(job.examples_uri) and job.config.workers > 1 and job.unread >= least


class PlanProcesses:
    """One process per thread of the job; each writes one plan at a time.

    Each has a pipe of its own, and no lock is shared: ProcessPoolExecutor can wait for ever when a
    process is killed while it, or another one, starts (Python 3.11).
    """

    def __init__(self, job: IngestJob) -> None:
        """Prepare the processes, which start with the first plans."""
        self._job = job
        self._idle = queue.LifoQueue[Connection | None]()
        for _ in range(job.config.workers):
            self._idle.put(None)
        self._started: list[SpawnProcess] = []

    def write_plan(self, number: int) -> None:
        """Have an idle process write a plan, and wait until it is written.

        Raises:
            ResourceError: a process has been killed.
        """
        pipe = self._idle.get()
        try:
            pipe = pipe or self._start()
            pipe.send(number)
            while isinstance(answer := pipe.recv(), logging.LogRecord):
                logging.getLogger(answer.name).handle(answer)
        except (EOFError, OSError) as error:
            raise ResourceError(
                "A process of ingest was killed or crashed, probably because memory ran out: "
                "set ingest.threads to a smaller number, or free memory, and run again."
            ) from error
        finally:
            self._idle.put(pipe)
        if isinstance(answer, Exception):
            raise answer
        files, retries = answer
        retry.add_retries(retries)
        self._job.count(files)

    def _start(self) -> Connection:
        """Start a process, and return the pipe to it."""
        # A fork would copy locks that threads of TensorFlow and Beam hold.
        context = multiprocessing.get_context("spawn")
        pipe, there = context.Pipe()
        process = context.Process(target=_write_plans, args=[there], daemon=True)
        with _starting_plainly():
            process.start()
        self._started.append(process)
        there.close()  # So that the pipe ends with the process.
        pipe.send(self._job)
        return pipe

    def close(self) -> None:
        """End the processes after their plans."""
        while not self._idle.empty():
            if pipe := self._idle.get():
                pipe.close()
        for process in self._started:
            process.join()


@contextlib.contextmanager
def _starting_plainly() -> Iterator[None]:
    """Keep a new process from importing the running script, as multiprocessing would."""
    with _starting:
        main, before = sys.modules["__main__"], {name: os.environ.get(name) for name in _VARIABLES}
        sys.modules["__main__"] = ModuleType("__main__")
        os.environ |= _VARIABLES
        try:
            yield
        finally:
            sys.modules["__main__"] = main
            for name, value in before.items():
                os.environ.pop(name)
                os.environ |= {name: value} if value is not None else {}


def _write_plans(pipe: Connection) -> None:
    """Write the plans of a job whose numbers come through the pipe, until it is closed.

    What is logged goes back through it, before the answer on the plan.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on a terminal is for the run alone.
    threading.Thread(target=_end_with_run, daemon=True).start()
    job = pipe.recv()
    answer, sending = pipe.send, threading.Lock()

    class Log(QueueHandler):
        def enqueue(self, record: logging.LogRecord) -> None:
            with sending:
                answer(record)

    logging.getLogger().addHandler(Log(queue.Queue()))
    with contextlib.suppress(EOFError):
        while True:
            written = _write_plan(pipe.recv(), job)
            with sending:
                answer(written)


def _end_with_run() -> None:
    """Exit as soon as the run ends, even by SIGKILL, so that nothing is written after it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write_plan(number: int, job: IngestJob) -> tuple[int, Counter[str]] | Exception:
    """Write a plan; return the number of its files, and the retries by their causes."""
    before, counts = retry.count_retries(), list[int]()
    try:
        write_plan(number, job, counts.append)
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # Each class pickles in its own way.
            return RuntimeError(traceback.format_exc())
        return error
    return sum(counts), Counter(retry.count_retries()) - Counter(before)
