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
from tests.pictures import write_folder

ROOT = Path(__file__).parents[2]
SAID = {
    "local_runner.py": "local_runner.py: stopped; finished steps are kept.\n",
    "kfp_runner.py": "kfp_runner.py: stopped.\n",
}


def stop(
    number: int, *argv: str, at: str = "", after: float = 0.0, status: int | None = None
) -> None:
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
    ("argv", "number"),
    [
        (["inspect"], signal.SIGINT),
        ([], signal.SIGINT),
        (["compile"], signal.SIGTERM),
    ],
)
def test_during_imports(tmp_path: Path, argv: list[str], number: int) -> None:
    data = write_folder(tmp_path / "images", each=2_000 if argv == ["inspect"] else 20)
    folders = ["--data", str(data), "--output", str(tmp_path / "out")]
    program = "kfp_runner.py" if argv == ["compile"] else "local_runner.py"
    if argv == ["compile"]:
        folders = ["--data", "gs://b/x", "--image", "i", "--output", str(tmp_path / "spec")]
    # The interpreter itself takes up to a tenth of a second, before any line of ours.
    stop(number, program, *argv, *folders, after=0.3)
