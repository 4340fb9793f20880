"""Kill ingest at random moments, and run it again."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import pytest
import tensorflow as tf

from components.ingest import plan_processes
from components.ingest.config import IngestConfig
from components.records.shard_files import read_index
from tests import nodes
from tests.pictures import write_folder
from tests.processes import find_children, find_plan_servers, wait_for_end

pytestmark = pytest.mark.slow

# Runs that are killed before they are done; how many tries that takes is up to the machine.
_TIMES = 10
_MOST_TRIES = 40
_EACH = 400


def _ingest(folder: Path, target: Path, fewest: int) -> None:
    plan_processes.MIN_FILES = fewest
    nodes.ingest(folder, target, config=IngestConfig(threads=2))


def _wait_for_work(process: multiprocessing.process.BaseProcess, target: Path) -> None:
    """Wait until the first shard is being written, or the process has ended."""
    while process.is_alive() and not (target / "examples" / ".unfinished").exists():
        time.sleep(0.001)


def _undisturbed(folder: Path, target: Path) -> tuple[dict[str, bytes], float]:
    """Return what a complete run writes, and the seconds that it takes."""
    process = _start(folder, target)
    _wait_for_work(process, target)
    started = time.monotonic()
    process.join()
    assert process.exitcode == 0
    return _files(target), time.monotonic() - started


def _start(
    folder: Path, target: Path, fewest: int = plan_processes.MIN_FILES
) -> multiprocessing.process.BaseProcess:
    """Ingest in a process, which starts more processes from `fewest` files."""
    # Forks of a server that has imported everything start 6 s sooner.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.nodes"])
    process = context.Process(target=_ingest, args=(folder, target, fewest))
    process.start()
    return process


def _files(target: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(target)): p for p in target.rglob("*") if p.is_file()}
    return {name: path.read_bytes() for name, path in found.items()}


def _check_what_is_left(target: Path, expected: dict[str, bytes]) -> None:
    """No shard that readers accept is incomplete."""
    for name, data in _files(target).items():
        if ".unfinished" not in name and name.startswith("examples/"):
            assert data == expected[name], f"{name} is half-written"
    if (target / "examples" / "index.json").exists():
        for split, shards in read_index(str(target / "examples"))["splits"].items():
            for shard, records in shards.items():
                path = str(target / "examples" / f"Split-{split}" / shard)
                assert sum(1 for _ in tf.data.TFRecordDataset(path)) == records


def test_killed_at_any_moment_and_run_again(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=_EACH)
    expected, seconds = _undisturbed(folder, tmp_path / "whole")
    moments = random.Random(0)
    interrupted = 0
    for number in range(_MOST_TRIES):
        target = tmp_path / f"killed-{number}"
        # Every other time, processes write the shards.
        process = _start(folder, target, plan_processes.MIN_FILES if number % 2 else 1)
        _wait_for_work(process, target)
        process.join(seconds * moments.random())
        servers = find_plan_servers(process.pid or 0)
        writing = [*servers, *(fork for server in servers for fork in find_children(server))]
        process.kill()
        process.join()
        for pid in writing:
            wait_for_end(pid)
        interrupted += _files(target) != expected
        _check_what_is_left(target, expected)
        again = _start(folder, target)
        again.join()
        assert again.exitcode == 0
        assert _files(target) == expected
        if interrupted == _TIMES:
            return
    pytest.fail(f"only {interrupted} of {_MOST_TRIES} runs were killed before they were done")
