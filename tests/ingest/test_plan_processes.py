import dataclasses
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gcs_server import GcsServer
from components.contract.errors import ResourceError
from components.images.tensorflow_decoder import (
    Decoder,
    UndecodableError,
    decode_here,
    read_orientation_here,
    run_here,
    run_with,
)
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_source
from components.ingest.plan.assignment import Assignment
from components.ingest.plan.splits import SplitRule
from components.ingest.write import processes as plan_processes
from components.ingest.write.plan_writer import IngestJob
from components.ingest.write.processes import PlanProcesses, are_worth_it, is_quick
from components.ingest.write.run import ingest_listing
from components.storage import retry
from tests.ingest.plain import write_all
from tests.pictures import encode, picture, write_folder
from tests.storage.gs_client import point_to

# JPEGs are decoded without TensorFlow, PNGs with it.
CONFIG = IngestConfig(threads=2, min_shards=2, max_reject_fraction=0.5)

ASKED: set[Decoder] = set()
# The same tag twice: decoders differ on which one counts.
TWICE = struct.pack("<2sHIHHHIHHHHIHHI", b"II", 42, 8, 2, 274, 3, 1, 1, 0, 274, 3, 1, 1, 0, 0)


class OddError(Exception):
    """An error that cannot be pickled."""

    def __init__(self, number: int, unit: str) -> None:
        super().__init__(f"{number} {unit}")


def answer(question: Decoder, data: bytes) -> Any:
    """Stand in for TensorFlow, which takes seconds to load."""
    ASKED.add(question)
    if question == read_orientation_here:
        return 1
    if len(data) % 2:
        raise UndecodableError("an odd number of bytes")
    if len(data) % 4:
        raise OddError(len(data), "bytes")
    return np.full((24, 32, 3), len(data) % 256, np.uint8)


@pytest.fixture(autouse=True)
def _decoder() -> Iterator[None]:
    run_with(answer)
    yield
    run_with(run_here)


def ingest(
    folder: Path | str, target: Path, write: Callable[[Sequence[int], IngestJob], None]
) -> dict[str, bytes]:
    """Return every written file by name."""
    listing, parts = list_source(str(folder), CONFIG), (target / "examples", target / "rejects")
    examples, rejects = map(str, parts)
    ingest_listing(listing, CONFIG, examples=examples, rejects=rejects, write=write)
    return {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}


class InThread:
    """The program of a process in a thread, in place of `_Process`."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self.send, self.receive, self.end = ours.send, ours.recv, ours.close

        def program() -> None:
            with pytest.raises(EOFError):
                plan_processes._write_plans(plan_processes._Sender(theirs))

        threading.Thread(target=program, daemon=True).start()


@pytest.mark.parametrize(
    ("process", "threads"),
    # Threads would share the function that asks.
    [(InThread, 1), pytest.param(plan_processes._Process, 2, marks=pytest.mark.slow)],
)
def test_processes_write_the_same_bytes_and_report_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: type[Any], threads: int
) -> None:
    config = dataclasses.replace(CONFIG, threads=threads)
    monkeypatch.setattr(sys.modules[__name__], "CONFIG", config)
    monkeypatch.setattr(plan_processes, "_Process", process)
    counts: list[int] = []

    def write(numbers: Sequence[int], job: IngestJob) -> None:
        monkeypatch.setattr(IngestJob, "count", lambda _, files: counts.append(files))
        processes = PlanProcesses(job, answer)
        for number in numbers:
            processes.write_plan(number)
        processes.close()

    folder = write_folder(tmp_path / "images", each=50)
    (folder / "red" / "broken.jpg").write_bytes(b"no image")
    odd = encode(picture(0), "JPEG", exif=b"Exif\0\0" + TWICE)
    (folder / "red" / "odd.jpg").write_bytes(odd)
    expected = ingest(folder, tmp_path / "here", write_all)
    assert b"an odd number of bytes" in expected["rejects/rejects.jsonl"]
    assert b' bytes"}' in expected["rejects/rejects.jsonl"]
    ASKED.clear()
    assert ingest(folder, tmp_path / "there", write) == expected
    assert {decode_here, read_orientation_here} == ASKED
    # Two plans, with a report at every 64th file, too.
    assert sum(counts) == 152
    assert len(counts) == 4


@pytest.mark.slow
def test_processes_read_a_bucket_and_tell_the_run_of_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = dataclasses.replace(CONFIG, check="header", requests=8)
    monkeypatch.setattr(sys.modules[__name__], "CONFIG", config)
    folder = write_folder(tmp_path / "images", each=20)
    expected = ingest(folder, tmp_path / "here", write_all)

    def write(numbers: Sequence[int], job: IngestJob) -> None:
        processes = PlanProcesses(job, answer)
        server.faults = {f"images/{path.relative_to(folder)}": [503] for path in broken}
        for number in numbers:
            processes.write_plan(number)
        processes.close()

    broken = sorted(folder.glob("*/*"))[::20]
    with GcsServer({"bucket": tmp_path}) as server, point_to(server):
        monkeypatch.setenv("FSSPEC_GS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("FSSPEC_GS_TOKEN", "anon")
        found = ingest("gs://bucket/images", tmp_path / "there", write)
        assert retry.count_retries() == {"HTTP status 503": len(broken)}
    assert caplog.text.count("after HTTP status 503: GET ") == len(broken)
    shards = {name for name in expected if "Split-" in name}
    assert {name: found[name] for name in shards} == {name: expected[name] for name in shards}


def job_in(place: Path, **changes: object) -> IngestJob:
    many, folder = plan_processes.MIN_FILES, str(place)
    job = IngestJob(folder, folder, CONFIG, Assignment(SplitRule({})), total=many, unread=many)
    return dataclasses.replace(job, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_killed_processes_are_explained_and_none_outlives_the_run(tmp_path: Path) -> None:
    processes = PlanProcesses(job_in(tmp_path), answer)
    with pytest.raises(FileNotFoundError, match="plans") as caught:
        processes.write_plan(0)
    assert "read_plan" in str(caught.value.__cause__)
    killed, left = processes._processes
    killed.popen.kill()
    # They take turns.
    ended = {type(error): str(error) for error in (fail(processes), fail(processes))}
    assert ended.keys() == {FileNotFoundError, ResourceError}
    assert "set ingest.threads to a smaller number, or free memory" in ended[ResourceError]
    # The system does the same when this process ends, even by SIGKILL.
    assert left.popen.stdin
    left.popen.stdin.close()
    left.popen.wait(20)
    processes.close()


@pytest.mark.slow
def test_a_crashed_process_is_not_a_user_error(tmp_path: Path) -> None:
    processes = PlanProcesses(job_in(tmp_path), answer)
    processes._processes[0].popen.send_signal(signal.SIGSEGV)
    with pytest.raises(RuntimeError, match="ended with status -11"):
        processes.write_plan(0)
    processes.close()


def fail(processes: PlanProcesses) -> Exception:
    with pytest.raises((OSError, ResourceError)) as caught:
        processes.write_plan(0)
    return caught.value


def test_processes_are_worth_it_for_many_files_and_several_threads(tmp_path: Path) -> None:
    assert are_worth_it(job_in(tmp_path))
    assert are_worth_it(job_in(tmp_path, folder="gs://bucket/images"))
    assert not are_worth_it(job_in(tmp_path, unread=plan_processes.MIN_FILES - 1))
    assert not are_worth_it(job_in(tmp_path, config=IngestConfig(threads=1)))
    assert not are_worth_it(job_in(tmp_path, examples_uri="gs://bucket/out"))


@pytest.mark.parametrize(
    ("job", "is_expected"),
    [
        ({}, True),
        ({"has_grown": False}, False),
        ({"has_grown": False, "again": True}, True),
        ({"unread": 501}, False),
        ({"total": 50_001}, False),
        ({"examples_uri": "gs://bucket/out"}, False),
    ],
    ids=str,
)
def test_few_new_images_need_no_beam(
    tmp_path: Path, job: dict[str, Any], *, is_expected: bool
) -> None:
    few = job_in(tmp_path, unread=1, total=1_000, has_grown=True)
    assert is_quick(dataclasses.replace(few, **job)) == is_expected
