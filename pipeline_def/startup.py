"""Starts and ends a process that imports TensorFlow and TFX faster."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import psutil

from components.contract.errors import UserError
from components.contract.printable import make_printable
from pipeline_def.light_imports import import_libraries


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import TensorFlow and TFX within this context, without modules that no step uses."""
    # Imports take three times as long without byte code, which some shells turn off.
    sys.dont_write_bytecode = False
    # Imports create millions of objects and no garbage.
    gc.disable()
    try:
        import_libraries()
        yield
    finally:
        gc.freeze()
        gc.enable()


def seconds_since_start() -> float:
    """Return the seconds since this process, or the `uv run` that started it, began."""
    process = psutil.Process()
    with contextlib.suppress(psutil.Error):
        if (parent := process.parent()) and parent.name() == "uv":
            process = parent
    return time.time() - float(process.create_time())


def exit_status(command: Callable[[], int], *, program: str, stopped: str) -> int:
    """Run a command of a runner and print the message of a `UserError`.

    Args:
        command: returns its own exit status: 0, or 1 for a failed run.
        program: printed before the message.
        stopped: printed after Ctrl-C.

    Returns:
        The status to exit with: of the command or of the error's class, 130 after Ctrl-C, 141 after
        a broken pipe, as with `| head`.
    """
    try:
        return command()
    except UserError as error:
        print(make_printable(f"{program}: error: {error}"), file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # The interpreter flushes the buffer on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"{program}: {stopped}", file=sys.stderr)
        return 130


def end_process(status: int) -> NoReturn:
    """Run exit handlers, flush output and exit, without the 2 s of tearing down TensorFlow."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # The reader may be gone.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
