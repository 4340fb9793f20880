"""Runs whose disk is full from the beginning of a step on, and which go on when it is not.

The images lie on another file system, which is read-only.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.conftest import Undisturbed
from tests.faults.full_disk import fill, make_space, read_only, small_disk
from tests.faults.outputs import check_live, check_result
from tests.faults.programs import EXECUTE, PUBLISH, Program
from tests.nodes import NODES

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]

_SENTENCE = re.compile(
    r"local_runner\.py: error: No space left in (\S+); [\d.,]+ MiB are free there now\. "
    r"Make space and run again: finished steps are kept\.\n"
)


# When each begins to work, and when nothing but the note of it is missing.
MOMENTS = [*((step, EXECUTE) for step in NODES), ("Pusher", PUBLISH)]


def run_with_full_disk(
    arguments: list[str], folder: Path, *, step: str, before: str, disk: Path
) -> str:
    """Fill the disk at a moment of `step`; return what the run prints to standard error."""
    program = Program(arguments, folder, held=step, before=before)
    assert program.wait_until(lambda: program.is_held), program.err
    fill(disk)
    program.let_go()
    status = program.wait()
    make_space(disk)
    assert status == 2, program.out + program.err
    return program.err


def test_full_in_every_step(tmp_path: Path, undisturbed: Undisturbed) -> None:
    with small_disk(tmp_path / "disk", mib=64) as disk, read_only(undisturbed.data):
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
