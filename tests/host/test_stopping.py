"""Processes that are stopped where a `KeyboardInterrupt` would be lost, wrapped or late."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_BEGIN = """
import os, sys
from components.host.stopping import before_stopping, stop_with
stop_with("run.py: stopped.")
def ready():
    print("ready", flush=True)
"""
# What a library may make of an interruption → the program.
PLACES = {
    "everything is caught": """
import time
ready()
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
""",
    "the main thread is within C": """
import ctypes
lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
lock(mutex)
ready()
lock(mutex)
""",
    "standard error is a log": """
import time
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
ready()
time.sleep(60)
""",
    "a thread never ends": """
import threading
threading.Thread(target=threading.Event().wait).start()
ready()
""",
}


def stop(program: str, *numbers: int) -> tuple[int, str]:
    """Send each signal when the program says that it is ready; return its status and errors."""
    with subprocess.Popen(
        [sys.executable, "-c", _BEGIN + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for number in numbers:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
        said = process.stderr.read()
        return process.wait(20), said


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_one_sentence_and_the_status_of_the_signal(place: str) -> None:
    assert stop(PLACES[place], signal.SIGINT) == (130, "run.py: stopped.\n")


def test_actions_before_stopping(tmp_path: Path) -> None:
    program = f"""
import time
def note():
    open({str(tmp_path / "noted")!r}, "w").write("stopped")
    return "run.py: gone."
def fail():
    raise ValueError
with before_stopping(note), before_stopping(fail), before_stopping(lambda: None):
    with before_stopping(lambda: "not any more"):
        pass
    ready()
    time.sleep(60)
"""
    assert stop(program, signal.SIGTERM) == (143, "run.py: gone.\n")
    assert (tmp_path / "noted").read_text() == "stopped"
