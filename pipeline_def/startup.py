"""Makes starting and ending a process that imports TensorFlow and TFX faster."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

import psutil

from pipeline_def.light_imports import import_libraries


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import TensorFlow and TFX within this context, without what no step uses."""
    # Without byte code importing takes thrice as long; some shells keep Python from writing it.
    sys.dont_write_bytecode = False
    # Modules are no garbage, and there are millions of objects to look through.
    gc.disable()
    try:
        import_libraries()
        yield
    finally:
        gc.freeze()
        gc.enable()


def seconds_since_start() -> float:
    """Return the seconds since the user's command began: that of `uv run`, where it is one."""
    process = psutil.Process()
    with contextlib.suppress(psutil.Error):
        if (parent := process.parent()) and parent.name() == "uv":
            process = parent
    return time.time() - float(process.create_time())


def end_process(status: int) -> NoReturn:
    """End this process without taking TensorFlow and its threads apart, which takes 2 s.

    What is to be done at the end is done, and what was printed is written.

    Args:
        status: to exit with.
    """
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # Nobody may be reading any more.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
