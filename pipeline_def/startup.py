"""Makes starting and ending a process that imports TensorFlow and TFX faster, and quieter."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import logging
import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import NoReturn

import psutil

from pipeline_def.light_imports import import_libraries

# What TensorFlow 2.21 says of oneDNN and GPUs whatever TF_CPP_MIN_LOG_LEVEL is.
_CHATTER = "/^I0000 /d; /^WARNING: All log messages before absl::InitializeLog/d"


def quieten_tensorflow() -> None:
    """Drop what is nothing to act on from what TensorFlow prints when it is imported."""
    if "tensorflow" not in sys.modules and _QUIET_FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _QUIET_FINDER)


class _QuietFinder:
    """Finds TensorFlow, once, with an import that is filtered."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_filtered(module: types.ModuleType) -> None:
                with _filtered_errors():
                    execute(module)

            spec.loader.exec_module = execute_filtered  # type: ignore[method-assign]
        return spec


_QUIET_FINDER = _QuietFinder()


@contextlib.contextmanager
def _filtered_errors() -> Iterator[None]:
    """Send standard error through a filter.

    A process of its own, so that the last words of one that dies of an import are seen.
    """
    command = ["sed", "--unbuffered", _CHATTER]
    kept = os.dup(2)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=kept) as sed:
        assert sed.stdin
        os.dup2(sed.stdin.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


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
