"""Kill and stop runs in every step, at moments that their output tells."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.host.machine import available_cpus
from tests.faults.conftest import Undisturbed
from tests.faults.outputs import check_live, check_result, count_running
from tests.faults.programs import Program
from tests.nodes import NODES

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]

# In a shorter step, the middle is hardly apart from start and end.
LEAST_SECONDS = 0.5
STOPPED = "local_runner.py: stopped; finished steps are kept.\n"


def wait_for_start(program: Program, output: Path, step: str, seconds: float) -> None:
    """Wait until the run says that a step begins."""
    assert program.wait_until(lambda: f"] {step} …" in program.out), program.err


def wait_for_middle(program: Program, output: Path, step: str, seconds: float) -> None:
    """Wait for half of the time that a step takes, or until it has written a file."""
    wait_for_start(program, output, step, seconds)
    folder, before, half = output / "artifacts" / step, time.time(), time.time() + seconds / 2

    def wrote() -> bool:
        return any(path.stat().st_mtime > before for path in folder.rglob("*") if path.is_file())

    assert program.wait_until(lambda: time.time() > half or wrote()), program.err


def wait_for_end(program: Program, output: Path, step: str, seconds: float) -> None:
    """Wait until a step has written everything, but ML Metadata does not know."""
    assert program.wait_until(lambda: program.is_held), program.err


Wait = Callable[[Program, Path, str, float], None]
MOMENTS: tuple[Wait, ...] = (wait_for_start, wait_for_middle, wait_for_end)


def check_end(program: Program, number: int, status: int) -> None:
    """A killed process prints nothing, a stopped one a sentence."""
    if number == signal.SIGKILL:
        assert (status, program.err) == (-signal.SIGKILL, "")
    else:
        assert (status, program.err) == (128 + number, STOPPED)


def choose_stops(step: str, seconds: float) -> Iterator[tuple[int, Wait]]:
    """Yield signals and moments: the end of every step, the middle of a long one, a few starts.

    SIGKILL, SIGTERM and SIGINT take turns; the program treats the last two alike.
    """
    number = NODES.index(step)
    for moment, wait in enumerate(MOMENTS):
        if wait is wait_for_start and number % 4:
            continue
        if wait is wait_for_middle and seconds < LEAST_SECONDS:
            continue
        polite = (signal.SIGTERM, signal.SIGINT)[number % 2]
        yield polite if (number + moment) % len(MOMENTS) == 0 else signal.SIGKILL, wait


def find_plan_processes(pid: int) -> list[int]:
    """Return ingest's processes that any thread of `pid` has started."""
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == pid and b"spawn_main" in (path / "cmdline").read_bytes():
                processes.append(int(path.name))
        except OSError:  # It has ended meanwhile.
            continue
    return processes


def kill_process_of_ingest(arguments: list[str], folder: Path) -> None:
    """Kill a process of ingest, as for lack of memory: the run ends with advice."""
    program = Program(arguments, folder, in_processes=True)
    started: list[int] = []

    def has_started() -> bool:
        started.extend(find_plan_processes(program.process.pid or 0))
        return bool(started)

    assert program.wait_until(has_started), program.err
    os.kill(started[0], signal.SIGKILL)
    assert program.wait() == 2
    assert len(program.err.splitlines()) == 1
    assert "A process of ingest was killed" in program.err


def test_stopped_in_every_step(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """About 18 times; each run resumes where the one before was stopped."""
    output = tmp_path / "out"
    arguments = undisturbed.arguments(output)
    # With one CPU, ingest starts no processes.
    if available_cpus() > 1:
        kill_process_of_ingest(arguments, tmp_path)
    for step in NODES:
        seconds = undisturbed.seconds[step]
        for number, wait in choose_stops(step, seconds):
            program = Program(arguments, tmp_path, held=step)
            wait(program, output, step, seconds)
            check_end(program, number, program.stop(number))
            check_live(output, undisturbed.names)
            assert count_running(output) <= 1
    program = Program(arguments, tmp_path)
    assert program.wait() == 0, program.err
    check_result(output, undisturbed.result, undisturbed.names)
