"""Write plans in processes: Python's work on one file then does not hold up other threads.

The processes load neither TFX nor Beam, and TensorFlow only for files that need its decoder.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from logging.handlers import QueueHandler, QueueListener
from types import ModuleType
from typing import Any, Literal

from components.contract.artifact_files import on_disk
from components.contract.errors import ResourceError
from components.ingest.write.plan_writer import IngestJob, write_plan
from components.storage import retry

MIN_FILES = 10_000
"""Number of files from which processes pay off. Starting them takes 0.4 s of CPU time, in which a
thread ingests 6,000 small files; two processes ingest twice as many per second as two threads."""
# Loading TensorFlow takes a process 4 s of CPU time, in which a thread ingests 10,000 small PNGs.
_FOR_TENSORFLOW = 10
# Beam takes 0.3 s of CPU time to start, in which a thread checks 500 photographs.
_FEW = 500

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
_job: IngestJob


def choose_way(job: IngestJob) -> Literal["here", "threads", "processes"]:
    """Return who writes the plans of a job: threads here, or Beam's threads or their processes.

    Processes only write to a disk: for a bucket, each would load TensorFlow.
    """
    to_disk = on_disk(job.examples_uri)
    if to_disk and on_disk(job.folder) and job.has_grown and job.unread <= _FEW:
        return "here"
    least = MIN_FILES * (_FOR_TENSORFLOW if job.for_tensorflow else 1)
    are_many = job.config.workers > 1 and job.unread >= least
    return "processes" if to_disk and are_many else "threads"


class PlanProcesses:
    """One process per thread of the job; each writes one plan at a time."""

    def __init__(self, job: IngestJob) -> None:
        """Prepare the processes, which start with the first plans."""
        self._job = job
        # A fork would copy locks that threads of TensorFlow and Beam hold.
        context = multiprocessing.get_context("spawn")
        with _starting_plainly():  # multiprocessing starts a process of its own for them.
            log: Any = context.Queue()
            self._pool = ProcessPoolExecutor(job.config.workers, context, _begin, (job, log))
        self._listener = QueueListener(log, _Logger())
        self._listener.start()

    def write_plan(self, number: int) -> None:
        """Have an idle process write a plan, and wait until it is written.

        Raises:
            ResourceError: a process has been killed.
        """
        try:
            with _starting_plainly():
                written = self._pool.submit(_write_plan, number)
            files, retries = written.result()
        except BrokenProcessPool as error:
            raise ResourceError(
                "A process of ingest was killed or crashed, probably because memory ran out: set "
                "ingest.threads to a smaller number, or free memory, and run again."
            ) from error
        retry.add_retries(retries)
        self._job.count(files)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()
        self._listener.stop()


class _Logger(logging.Handler):
    """Logs what a process has logged as if it had been logged here."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).handle(record)


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


def _begin(job: IngestJob, log: Any) -> None:
    """Prepare this process, which the run has started."""
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on a terminal is for the run alone.
    logging.getLogger().addHandler(QueueHandler(log))
    threading.Thread(target=_end_with_run, daemon=True).start()


def _end_with_run() -> None:
    """Exit as soon as the run ends, even by SIGKILL, so that nothing is written after it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write_plan(number: int) -> tuple[int, Counter[str]]:
    """Write a plan; return the number of its files, and the retries by their causes."""
    before, counts = retry.count_retries(), list[int]()
    try:
        write_plan(number, _job, counts.append)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # Each class pickles in its own way.
            raise RuntimeError(str(error)) from error
        raise
    return sum(counts), Counter(retry.count_retries()) - Counter(before)
