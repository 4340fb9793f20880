"""Run `local_runner.py` in processes whose output is watched.

Forks of a server that has imported everything start 7 s sooner.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from components.contract import rules_of_thumb
from components.host.startup import quick_imports
from components.ingest.write import processes as plan_processes

ROOT = Path(__file__).parents[2]
EXECUTE, PUBLISH = "_run_executor", "_publish_successful_execution"
"""Methods of a step's launcher: run the executor, and record the result in ML Metadata."""

_POLL = 0.002
_PATIENCE = 240.0


class Program:
    """A running `local_runner.py`."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        *,
        held: str = "",
        before: str = PUBLISH,
        in_processes: bool = False,
    ) -> None:
        """Start the program.

        Args:
            arguments: command line.
            folder: folder for the output of the program.
            held: step that waits until it is killed or let go.
            before: method before which it waits.
            in_processes: ingest starts processes however few files there are.
        """
        folder.mkdir(exist_ok=True)
        self._paths = [folder / name for name in ("stdout", "stderr", "held", "free")]
        for path in self._paths[2:]:
            path.unlink(missing_ok=True)
        for path in self._paths[:2]:
            path.write_bytes(b"")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.faults.preloaded"])
        given = ([*arguments], self._paths, (held, before), in_processes)
        self.process = context.Process(target=_run, args=given)
        self.process.start()

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self._paths[0].read_text(errors="replace")

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self._paths[1].read_text(errors="replace")

    @property
    def is_held(self) -> bool:
        """Whether the held step is waiting."""
        return self._paths[2].exists()

    def let_go(self) -> None:
        """Release the held step."""
        self._paths[3].touch()

    def wait_until(self, reached: Callable[[], bool]) -> bool:
        """Return True as soon as `reached` does, False if the process ends first."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if reached():
                return True
            if not self.process.is_alive():
                return False
            time.sleep(_POLL)
        self.stop(signal.SIGKILL)
        raise TimeoutError(self.out + self.err)

    def stop(self, number: int) -> int:
        """Send a signal, and return the exit status."""
        if self.process.is_alive():
            os.kill(self.process.pid or 0, number)
        return self.wait()

    def wait(self) -> int:
        """Return the exit status, or minus the signal that has killed the process."""
        self.process.join(_PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(self.out + self.err)
        return self.process.exitcode


def _run(
    arguments: list[str], paths: list[Path], hold: tuple[str, str], in_processes: bool
) -> None:
    """Become `local_runner.py`."""
    sys.stdout.flush()
    for stream, path in enumerate(paths[:2], start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    if hold[0]:
        _hold(*hold, *paths[2:])
    if in_processes:
        plan_processes.MIN_FILES, rules_of_thumb.FEW_FOR_BEAM = 1, 0
    sys.argv = ["local_runner.py", *arguments]
    runpy.run_path(str(ROOT / "local_runner.py"), run_name="__main__")


def _hold(step: str, before: str, reached: Path, free: Path) -> None:
    """Make a step wait before a method of its launcher."""
    with quick_imports():
        from tfx.orchestration.portable.launcher import Launcher

    method = getattr(Launcher, before)

    def wait(self: Any, *arguments: Any, **named: Any) -> Any:
        if self._pipeline_node.node_info.id == step:
            reached.touch()
            end = time.monotonic() + _PATIENCE
            while time.monotonic() < end and not free.exists():
                time.sleep(_POLL)
        return method(self, *arguments, **named)

    setattr(Launcher, before, wait)
