"""Measures in fresh processes, and explains a failure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from components.contract.errors import UserError

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class MeasurementError(UserError):
    """A measuring process failed."""


def measure(
    arguments: Sequence[str],
    *,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    shown: bool = False,
) -> Any:
    """Run Python with `arguments` in a fresh process; return the JSON of its last line.

    Args:
        arguments: `-m`, a module and its options, or a script and its options.
        python: the interpreter.
        environment: additional variables.
        shown: print its stderr as it works.

    Raises:
        MeasurementError: it failed; a sentence says why.
    """
    try:
        done = subprocess.run(
            [python, *arguments],
            stdout=subprocess.PIPE,
            stderr=None if shown else subprocess.PIPE,
            text=True,
            env={**os.environ, **QUIET, **(environment or {})},
            check=False,
        )
    except OSError as error:
        raise MeasurementError(f"{python} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise MeasurementError(explain(done.stderr or "", done.returncode))
    return json.loads(done.stdout.strip().splitlines()[-1])


def explain(said: str, status: int) -> str:
    """Return a sentence on why a process failed, from its output."""
    if missing := _MISSING.search(said):
        return f"the package {missing[1].partition('.')[0]} is not installed in its environment"
    lines = said.strip().splitlines()
    if status < 0:
        return f"it was ended by signal {-status}"
    return (
        re.sub(r"^[\w. -]+: error: ", "", lines[-1]) if lines else f"it ended with status {status}"
    )
