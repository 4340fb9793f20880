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
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from logging.handlers import QueueHandler
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
# Of such a process.
_jobs: list[IngestJob] = []
_log: queue.Queue[logging.LogRecord] = queue.Queue()


def needs_processes(job: IngestJob) -> bool:
    """Return whether processes, instead of threads, write the plans of a job.

    Processes only write to a disk: for a bucket, each would load TensorFlow.
    """
    least = MIN_FILES * (_FOR_TENSORFLOW if job.for_tensorflow else 1)
    return on_disk(job.examples_uri) and job.config.workers > 1 and job.unread >= least


class PlanProcesses:
    """One process per thread of the job; each writes one plan at a time."""

    def __init__(self, job: IngestJob) -> None:
        """Prepare the processes, which start with the first plans."""
        self._job = job
        # Of millions of images, it is too large to go with each plan. The start of a process that
        # is killed would wait for ever to hand over more than a pipe holds.
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115
        pickle.dump(job, self._file)
        self._file.flush()
        # A fork would copy locks that threads of TensorFlow and Beam hold.
        context = multiprocessing.get_context("spawn")
        with _starting_plainly():  # The tracker of its semaphores, too.
            self._pool = ProcessPoolExecutor(
                job.config.workers, context, _prepare, (self._file.name,)
            )

    def write_plan(self, number: int) -> None:
        """Have an idle process write a plan, and wait until it is written.

        Raises:
            ResourceError: a process has been killed.
        """
        try:
            with _starting_plainly():
                written = self._pool.submit(_write_plan, number)
            files, retries, said = written.result()
        except BrokenProcessPool as error:
            raise ResourceError(
                "A process of ingest was killed or crashed, probably because memory ran out: "
                "set ingest.threads to a smaller number, or free memory, and run again."
            ) from error
        for record in said:
            logging.getLogger(record.name).handle(record)
        retry.add_retries(retries)
        self._job.count(files)

    def close(self) -> None:
        """End the processes after their plans."""
        self._pool.shutdown()
        self._file.close()


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


def _prepare(path: str) -> None:
    """Prepare a new process for the job in a file; what it logs goes back with each plan."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on a terminal is for the run alone.
    threading.Thread(target=_end_with_run, daemon=True).start()
    logging.getLogger().addHandler(QueueHandler(_log))
    with open(path, "rb") as file:
        _jobs.append(pickle.load(file))


def _end_with_run() -> None:
    """Exit as soon as the run ends, even by SIGKILL, so that nothing is written after it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write_plan(number: int) -> tuple[int, Counter[str], list[logging.LogRecord]]:
    """Write a plan; return the number of its files, the retries by their causes, and the log."""
    before, counts = retry.count_retries(), list[int]()
    try:
        write_plan(number, _jobs[0], counts.append)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # Each class pickles in its own way.
            raise RuntimeError(traceback.format_exc()) from None
        raise
    retries = Counter(retry.count_retries()) - Counter(before)
    return sum(counts), retries, [_log.get() for _ in range(_log.qsize())]
