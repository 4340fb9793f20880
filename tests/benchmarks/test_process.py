"""Measuring processes end with their parent, and the time left is not guessed too early."""

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.measuring.process import Progress

PARENT = """
import subprocess, sys
from benchmarks.measuring.process import end_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                         preexec_fn=end_with_parent)
print(child.pid, flush=True)
child.wait()
"""


def test_a_child_does_not_outlive_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while is_running(child):
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_time_left_is_unknown_until_every_kind_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 80.0, 81.0, 82.0, 162.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    progress = Progress(4, kinds=2)
    for name in ("slow", "fast", "slow", "fast"):
        progress.report(name)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "[1/4] slow",
        "[2/4] fast; about 80 s left",
        "[3/4] slow; about 30 s left",
        "[4/4] fast; done",
    ]
