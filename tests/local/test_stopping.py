"""Commands that are stopped as a user or a system does, at moments that their output tells."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import lock_output
from tests.repository import ROOT

SAID = {
    "local_runner.py": "local_runner.py: stopped; finished steps are kept.\n",
    "kfp_runner.py": "kfp_runner.py: stopped.\n",
}


def stop(number: int, *argv: str, at: str = "", after: float = 0.0) -> None:
    """Start a command, stop it `after` seconds from when it has printed `at`, and check its end."""
    with subprocess.Popen(
        [sys.executable, str(ROOT / argv[0]), *argv[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout if at else ():
            if at in line:
                break
        time.sleep(after)
        process.send_signal(number)
        said = process.stderr.read()
        assert process.wait(30) == 128 + number, said
    assert said == SAID[argv[0]]


@pytest.mark.slow
def test_while_waiting_for_another_run(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path / "out"))
    os.mkdir(layout.output)
    with lock_output(layout):
        argv = ("local_runner.py", "--sample", "--output", layout.output)
        stop(signal.SIGTERM, *argv, at="waiting until")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("local_runner.py --sample", signal.SIGINT),
        ("kfp_runner.py compile --image i --data gs://b/x", signal.SIGTERM),
    ],
)
def test_during_imports(tmp_path: Path, command: str, number: int) -> None:
    # The interpreter itself takes up to a tenth of a second, before any line of ours.
    stop(number, *command.split(), "--output", str(tmp_path / "out"), after=0.3)
