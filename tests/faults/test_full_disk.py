"""Fill the disk when a step begins, and resume the run once there is space.

The images are on another file system, which is read-only.
"""

import contextlib
import errno
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Undisturbed
from tests.faults.outputs import check_live, check_result
from tests.faults.programs import EXECUTE, PUBLISH, Program
from tests.missing import lack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]

_SENTENCE = re.compile(
    r"local_runner\.py: error: No space left in (\S+); [\d.,]+ MiB are free there now\. "
    r"Make space and run again: finished steps are kept\.\n"
)


@contextlib.contextmanager
def mounted(folder: Path, *what: str) -> Iterator[None]:
    """Mount something at `folder` while the context is open; skip the test if that is forbidden."""
    try:
        subprocess.run(["mount", *what, str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        lack("mount", f"nothing can be mounted here: {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk with a file, which is returned."""
    with (disk / "ballast").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return disk / "ballast"


# When a step begins, and when only the record of the last one is missing. These steps write with
# our own code, TFX, TensorFlow Transform, TensorFlow and SQLite.
STEPS = ("ImageExampleGen", "SchemaGen", "Transform", "Trainer")
MOMENTS = [*((step, EXECUTE) for step in STEPS), ("Pusher", PUBLISH)]


def run_with_full_disk(
    arguments: list[str], folder: Path, *, step: str, before: str, disk: Path
) -> str:
    """Fill the disk at a moment of `step`; return the run's standard error."""
    program = Program(arguments, folder, held=step, before=before)
    assert program.wait_until(lambda: program.is_held), program.err
    ballast = fill(disk)
    program.let_go()
    status = program.wait()
    ballast.unlink()
    assert status == 2, program.out + program.err
    return program.err


def test_full_in_every_step(tmp_path: Path, undisturbed: Undisturbed) -> None:
    (disk := tmp_path / "disk").mkdir()
    data = str(undisturbed.data)
    with (
        mounted(disk, "-t", "tmpfs", "-o", "size=64m", "tmpfs"),
        mounted(undisturbed.data, "--bind", data),
    ):
        # Even for the superuser.
        subprocess.run(["mount", "-o", "remount,ro,bind", data], check=True)
        output = disk / "out"
        arguments = undisturbed.arguments(output)
        for step, before in MOMENTS:
            said = run_with_full_disk(arguments, tmp_path, step=step, before=before, disk=disk)
            match = _SENTENCE.fullmatch(said)
            assert match, (step, said)
            assert match[1].startswith(str(output)), step
            check_live(output, undisturbed.names)
        program = Program(arguments, tmp_path)
        assert program.wait() == 0, program.err
        check_result(output, undisturbed.result, undisturbed.names)
