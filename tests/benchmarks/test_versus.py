from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pictures import write_folder


@pytest.mark.slow
def test_ours_and_a_peer_that_is_missing(tmp_path: Path) -> None:
    data = write_folder(tmp_path / "images", each=8)
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.peers.input_versus", "--data", str(data)]
    sizes = [
        "--storage",
        "jpeg",
        "--size",
        "32",
        "--batch",
        "8",
        "--images",
        "16",
        "--repeats",
        "1",
    ]
    peers = ["--python", "ffcv=/nowhere/python", "--contenders", "streamed,limit,ffcv"]
    places = ["--json", str(figures), "--work", str(tmp_path)]
    done = subprocess.run(
        [*command, *sizes, *peers, *places], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "It will take about" in done.stderr
    assert "ffcv is left out: /nowhere/python cannot be run" in done.stderr
    found = json.loads(figures.read_text())["figures"]
    assert set(found) == {"ours, streamed", "limit"}
    for [figure] in found.values():
        assert figure["images_per_second"] > 0
        assert figure["cpu_microseconds"] > 0
