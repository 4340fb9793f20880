"""Fuzz each target for some seconds, every week: the inputs are the same as long as the code is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Target → inputs, about 5 seconds each. The seed is fixed: new inputs are tried by hand.
_TARGETS = {"images": 3_000, "records": 4_000}


@pytest.mark.weekly
@pytest.mark.parametrize("target", _TARGETS)
def test_nothing_ends_in_a_traceback_or_hangs(tmp_path: Path, target: str) -> None:
    command = [sys.executable, "-m", f"tests.fuzz.{target}", "--seed=1", "--seconds=60"]
    done = subprocess.run(
        [*command, f"--runs={_TARGETS[target]}", f"--folder={tmp_path}"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    [runs] = re.findall(r"Done (\d+) runs", done.stderr)
    # The least that a slow machine reaches within the minute.
    assert int(runs) > _TARGETS[target] // 10
