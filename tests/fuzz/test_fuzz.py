"""A minute of what by hand takes an hour: each target, fuzzed for some seconds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Target → seconds, and how many inputs that are at least. TensorFlow is slow to start.
_TARGETS = {
    "configuration": (15, 100),
    "images": (15, 150),
    "manifests": (10, 300),
    "records": (10, 300),
    "executor_input": (10, 1000),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", _TARGETS)
def test_nothing_ends_in_a_traceback_or_hangs(tmp_path: Path, target: str) -> None:
    seconds, least = _TARGETS[target]
    command = [sys.executable, "-m", f"tests.fuzz.{target}", "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    [runs] = re.findall(r"Done (\d+) runs", done.stderr)
    assert int(runs) > least
