import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gcs_server import GcsServer
from components.contract.errors import ResourceError
from components.ingest.config import IngestConfig
from components.ingest.plan.assignment import Assignment
from components.ingest.plan.splits import SplitRule
from components.ingest.write.plan_writer import IngestJob
from components.ingest.write.processes import MIN_FILES, PlanProcesses, needs_processes
from components.storage import retry
from tests.ingest.plain import ingest, write_all
from tests.pictures import write_folder
from tests.storage.gs_client import point_to

CONFIG = IngestConfig(threads=2, min_shards=2, max_reject_fraction=0.5)


def write_in_processes(numbers: Sequence[int], job: IngestJob) -> None:
    processes = PlanProcesses(job)
    for number in numbers:
        processes.write_plan(number)
    processes.close()


@pytest.mark.slow
def test_processes_read_a_bucket_and_tell_the_run_of_files_and_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = dataclasses.replace(CONFIG, check="header")
    folder = write_folder(tmp_path / "images", each=20)
    expected = ingest(folder, tmp_path / "here", config)
    counts: list[int] = []
    # A second pass moves records.
    monkeypatch.setattr(IngestJob, "count", lambda job, n: None if job.again else counts.append(n))

    def write(numbers: Sequence[int], job: IngestJob) -> None:
        server.faults = {f"images/{path.relative_to(folder)}": [503] for path in broken}
        write_in_processes(numbers, job)

    broken = sorted(folder.glob("*/*"))[::20]
    with GcsServer({"bucket": tmp_path}) as server, point_to(server):
        monkeypatch.setenv("FSSPEC_GS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("FSSPEC_GS_TOKEN", "anon")
        from_bucket = ingest("gs://bucket/images", tmp_path / "there", config, write=write)
        assert retry.count_retries() == {"HTTP status 503": len(broken)}
    assert caplog.text.count("after HTTP status 503: GET ") == len(broken)
    assert sum(counts) == 60
    assert [from_bucket.shards(split) for split in from_bucket.counts] == [
        expected.shards(split) for split in expected.counts
    ]


def job_in(place: Path, **changes: object) -> IngestJob:
    folder = str(place)
    job = IngestJob(
        folder, folder, CONFIG, Assignment(SplitRule({})), total=MIN_FILES, unread=MIN_FILES
    )
    return dataclasses.replace(job, **changes)  # type: ignore[arg-type]


def list_workers(process: psutil.Process) -> list[psutil.Process]:
    # A child that has ended but was not waited for, as other tests leave them, has no command.
    alive = (child for child in process.children() if child.status() != psutil.STATUS_ZOMBIE)
    return [child for child in alive if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.slow
def test_errors_are_those_of_a_thread_and_a_killed_process_is_explained(tmp_path: Path) -> None:
    processes = PlanProcesses(job_in(tmp_path))
    with pytest.raises(FileNotFoundError, match="plans") as caught:
        processes.write_plan(0)
    assert "read_plan" in caught.value.__notes__[0]
    list_workers(psutil.Process())[0].kill()
    with pytest.raises(ResourceError, match=r"set ingest\.threads to a smaller number, or free"):
        processes.write_plan(0)
    processes.close()


@pytest.mark.slow
def test_processes_end_with_the_run_and_do_not_import_its_script(tmp_path: Path) -> None:
    # A module of the current folder that has the name of one of Python's must not be imported.
    (tmp_path / "random.py").write_text("raise SystemExit('imported')")
    script = tmp_path / "script" / "run.py"
    script.parent.mkdir()
    script.write_text(
        textwrap.dedent(f"""
        import contextlib, time
        from components.ingest.config import IngestConfig
        from components.ingest.plan.assignment import Assignment
        from components.ingest.plan.splits import SplitRule
        from components.ingest.write.plan_writer import IngestJob
        from components.ingest.write.processes import PlanProcesses

        config = IngestConfig(threads=2)
        job = IngestJob("x", {str(tmp_path)!r}, config, Assignment(SplitRule({{}})), 1, 1)
        with contextlib.suppress(FileNotFoundError):
            PlanProcesses(job).write_plan(0)
        print("written", flush=True)
        time.sleep(60)
        """)
    )
    run = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONSAFEPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.stdout
    assert run.stdout.readline() == "written\n"
    workers = list_workers(psutil.Process(run.pid))
    assert workers
    run.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
    assert run.communicate()[0] == ""


BUCKET = "gs://bucket/x"
WAYS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"folder": BUCKET}, True),
    ({"examples_uri": BUCKET}, False),
    ({"unread": MIN_FILES - 1}, False),
    ({"config": IngestConfig(threads=1)}, False),
    ({"for_tensorflow": True}, False),
    ({"for_tensorflow": True, "unread": 10 * MIN_FILES}, True),
]


def test_the_number_of_files_decides_who_writes_them(tmp_path: Path) -> None:
    for changes, needed in WAYS:
        assert needs_processes(job_in(tmp_path, **changes)) == needed, changes


@pytest.mark.parametrize(
    ("kind", "check", "expected"),
    [("PNG", "pixels", True), ("jpeg", "pixels", False), ("png", "header", False)],
)
def test_names_tell_of_tensorflow(tmp_path: Path, kind: str, check: Any, *, expected: bool) -> None:
    def note(numbers: Sequence[int], job: IngestJob) -> None:
        jobs.append(job)
        write_all(numbers, job)

    jobs: list[IngestJob] = []
    folder = write_folder(tmp_path / "images", each=4)
    for path in [*folder.glob("*/*.jpeg")]:
        path.rename(path.with_suffix(f".{kind}"))
    for path in folder.glob("*/000.png"):
        path.unlink()
    ingest(folder, tmp_path / "out", dataclasses.replace(CONFIG, check=check), write=note)
    assert jobs[0].for_tensorflow == expected


@pytest.mark.parametrize("size", [100, 500_000])
def test_a_process_killed_as_it_starts(tmp_path: Path, size: int) -> None:
    """Also while another one starts, and with more of the job to read than its pipe holds."""
    processes = PlanProcesses(job_in(tmp_path, folder="x" * size))
    errors: list[Exception] = []

    def write() -> None:
        try:
            processes.write_plan(0)
        except (ResourceError, FileNotFoundError) as error:
            errors.append(error)

    threads = [threading.Thread(target=write, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not (started := list_workers(psutil.Process())):
        time.sleep(0.001)
    started[0].kill()
    for thread in threads:
        thread.join(30)
    close = threading.Thread(target=processes.close, daemon=True)
    close.start()
    close.join(30)
    assert not close.is_alive()
    assert len(errors) == 2
    assert any("A process of ingest was killed" in str(error) for error in errors)
