"""A process that has imported TFX and starts steps as forks of itself: 7 s less for each."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ENTRYPOINT = ["-m", "pipeline_def.kubeflow.step.entrypoint"]


class WarmPython:
    """Runs the command of our steps; it imports the libraries with the variables of `env`."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._process: subprocess.Popen[str] | None = None

    @staticmethod
    def can_run(command: list[str]) -> bool:
        """Say whether it is the command of our steps, and namespaces need no user of their own."""
        return command[1:3] == _ENTRYPOINT and os.geteuid() == 0

    def run(self, plan: Mapping[str, Any], file: Path, timeout: float) -> int:
        """Write `plan` to `file`, run it, return its exit status.

        Raises:
            TimeoutExpired: It took more than `timeout` seconds.
        """
        file.write_text(json.dumps(plan))
        process = self._started()
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{file}\n")
        process.stdin.flush()
        # Time for the imports, before the first step.
        if not select.select([process.stdout], [], [], timeout + 60)[0]:
            self.close()
            raise subprocess.TimeoutExpired(plan["command"], timeout)
        return int(process.stdout.readline())

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            # -P: beside the script there is a platform.py, which is not Python's.
            script = Path(__file__).with_name("warm_process.py")
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", str(script)],
                env={"TF_CPP_MIN_LOG_LEVEL": "1", **self._env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process

    def close(self) -> None:
        """End the process, and with it a step that may still run."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@functools.cache
def shared_python() -> WarmPython:
    """Return one for all steps whose variables may be set after the libraries are imported."""
    python = WarmPython({"PATH": os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8"})
    atexit.register(python.close)
    return python
