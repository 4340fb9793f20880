"""Servers that Beam needs: a job server, a pool of Python workers."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[1]
_START_SECONDS = 60
# Beam waits for a worker that never comes for ever; without its job server, the job fails.
_LIFE_SECONDS = 900


@contextlib.contextmanager
def serving(
    command: list[str],
    log: Path,
    announcement: str,
    *,
    folder: Path = _REPOSITORY,
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run `command` for the time of the block; yields the address that it logs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["timeout", str(_LIFE_SECONDS), *command],
            cwd=folder,
            env={**(os.environ if environment is None else environment), "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _address(process, log, announcement)
    finally:
        # The whole group: a worker pool that is told to end would leave its workers behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=_START_SECONDS)


def _address(process: subprocess.Popen[bytes], log: Path, announcement: str) -> str:
    """Wait until the server has logged its `announcement` and, behind it, its address."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        # With the white space that follows: a line may be half written.
        if match := re.search(rf"{announcement} (\S+)\s", log.read_text()):
            return match[1]
        time.sleep(0.2)
    pytest.fail(f"No '{announcement}' in the log:\n{log.read_text()[-2000:]}")
