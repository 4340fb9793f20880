"""Processes that run one module of this program, which loads neither TensorFlow nor Beam.

A fork of the run itself would copy locks that threads of TensorFlow and Beam hold. multiprocessing
would also import the running script in each process, and look for modules in the current folder
first.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path


class WorkerProcess:
    """A process that runs `module` as a program, which calls `serve`; and the connection to it."""

    def __init__(self, module: str, *descriptors: int) -> None:
        """Start it; it inherits the file `descriptors`, whose numbers are its further arguments."""
        self.connection, theirs = Pipe()
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        inherited = [theirs.fileno(), *descriptors]
        self.popen = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, inherited)],
            # NumPy would start a thread for each core in each process.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)},
            # This pipe closes when the run ends, even by SIGKILL, and ends the process.
            stdin=subprocess.PIPE,
            pass_fds=inherited,
            # Ctrl-C on a terminal is for the run alone.
            start_new_session=True,
        )
        theirs.close()

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        self.popen.communicate()


def serve(work: Callable[[Connection], None]) -> None:
    """Call `work` with the connection to the process that started this one, until that ends."""
    threading.Thread(target=_end_with_run, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):
        work(Connection(int(sys.argv[1])))


def _end_with_run() -> None:
    """Exit as soon as standard input closes, so that nothing is written after the run."""
    os.read(0, 1)
    os._exit(1)
