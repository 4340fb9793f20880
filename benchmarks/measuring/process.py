"""Measures in fresh processes, reports progress, and explains a failure."""

import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.contract.errors import UserError

_ROOT = Path(__file__).parents[2]
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
_ERROR = re.compile(r"^[\w. -]+: error: ")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class MeasurementError(UserError):
    """A measuring process failed."""


def measure(
    arguments: Sequence[str],
    *,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Run Python with `arguments` in a fresh process; return the JSON of its last line.

    Args:
        arguments: `-m`, a module and its options, or a script and its options.
        python: the interpreter.
        environment: additional variables.

    Raises:
        MeasurementError: it failed; a sentence says why.
    """
    try:
        done = subprocess.run(
            [python, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **QUIET, **(environment or {})},
            check=False,
            preexec_fn=end_with_parent,
        )
    except OSError as error:
        raise MeasurementError(f"{python} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise MeasurementError(explain(done.stderr, done.returncode))
    return json.loads(done.stdout.strip().splitlines()[-1])


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        # From prctl(2): PR_SET_PDEATHSIG.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def explain(said: str, status: int) -> str:
    """Return a sentence on why a process failed, from its output."""
    if missing := _MISSING.search(said):
        return f"the package {missing[1].partition('.')[0]} is not installed in its environment"
    lines = said.strip().splitlines()
    if status < 0:
        return f"it was ended by signal {-status}"
    if not lines:
        return f"it ended with status {status}"
    # The runner's log is named after its error.
    errors = [line for line in lines if _ERROR.match(line)]
    return _ERROR.sub("", (errors or lines)[-1])


def run_pipeline(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[float, resource.struct_rusage]:
    """Run `local_runner.py` in a fresh process; return the seconds and the resources it took.

    Raises:
        MeasurementError: it failed.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "local_runner.py", "run", *arguments],
            cwd=_ROOT,
            env={**os.environ, **QUIET, **(environment or {})},
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
        )
        _, status, used = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            code = os.waitstatus_to_exitcode(status)
            raise MeasurementError(explain(said.read().decode(errors="replace"), code))
    return time.monotonic() - started, used


def say(text: str) -> None:
    """Print a line to stderr; results go to stdout."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Counts measurements."""

    def __init__(self, measurements: int) -> None:
        """Expect so many."""
        self._all, self._done = measurements, 0

    def report(self, what: str) -> None:
        """Report that a measurement is done, with its result."""
        self._done += 1
        say(f"[{self._done}/{self._all}] {what}")


def take_turns(
    names: Sequence[str],
    repeats: int,
    measure_one: Callable[[str], dict[str, Any]],
    show: Callable[[dict[str, Any]], str],
) -> dict[str, list[dict[str, Any]]]:
    """Measure each of `names` in rounds, so that a slow minute of the machine affects all of them.

    One whose measurement fails is left out from then on, with a line on stderr.

    Raises:
        MeasurementError: the first one, with which the others are compared, has failed.
    """
    figures: dict[str, list[dict[str, Any]]] = {}
    progress, lost = Progress(repeats * len(names)), set[str]()
    for _ in range(repeats):
        for name in (name for name in names if name not in lost):
            try:
                figure = measure_one(name)
            except MeasurementError as error:
                if name == names[0]:
                    raise
                lost.add(name)
                say(f"{name} is left out: {error}.")
                continue
            figures.setdefault(name, []).append(figure)
            progress.report(f"{name}: {show(figure)}")
    return figures
