"""Fuzz each target for some seconds, and damage images at random."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutated_images import run

# Target → seconds, and the least number of inputs. TensorFlow is slow to start.
_TARGETS = {
    "configuration": (6, 40),
    "images": (7, 70),
    "manifests": (4, 120),
    "records": (4, 120),
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


@pytest.mark.slow
def test_damaged_images_are_rejected_or_decoded_alike_everywhere() -> None:
    ends = run(3000, seed=1)
    assert set(ends) == {"rejected", "kept", "transcoded"}
    assert sum(ends.values()) == 3000
    # Each outcome is frequent, so the damage is neither too great nor too small.
    assert min(ends.values()) > 100
