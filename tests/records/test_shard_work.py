import contextlib
import threading
import time

import apache_beam as beam
import pytest

from components.contract.errors import DataError
from components.records.shard_work import ConcurrentDoFn


class Work(ConcurrentDoFn):
    """Elements are durations in seconds; negative ones fail."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.written: list[float] = []
        self._busy = threading.Semaphore(workers)

    def work(self, seconds: float) -> None:
        assert self._busy.acquire(blocking=False)
        time.sleep(abs(seconds))
        self._busy.release()
        if seconds < 0:
            raise OSError("disk full")
        self.written.append(seconds)


@pytest.mark.parametrize("elements", [(-0.01, 0.1), (0.1, -0.01, 0.1)], ids=["last", "in between"])
def test_a_bundle_ends_when_all_is_done_or_one_fails(elements: tuple[float, ...]) -> None:
    def do(*elements: float) -> None:
        work.start_bundle()
        for element in elements:
            work.process(element)
        work.finish_bundle()

    work = Work(2)
    with pytest.raises(OSError, match="disk full"):
        do(*elements)
    reported = list(work.written)
    time.sleep(0.15)
    assert work.written == reported
    # Beam may repeat the bundle with the same object.
    do(0.03, 0.0, 0.02, 0.01)
    assert sorted(work.written[len(reported) :]) == [0.0, 0.01, 0.02, 0.03]


FEW, DISK = 5_000, "/out"


# Images, where they go, options of Beam, and whether it is started.
RUNS: list[tuple[int | None, str, str, bool]] = [
    (FEW, DISK, "--direct_num_workers=2", False),
    (FEW, DISK, "--runner=FlinkRunner --runner=directrunner", False),
    (FEW, DISK, "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner", False),
    (FEW + 1, DISK, "", True),
    (None, DISK, "", True),
    (FEW, "gs://bucket/out", "", True),
    (FEW, DISK, "--runner=FlinkRunner", True),
    (FEW, DISK, "--runner flink", True),
    (FEW, DISK, "--runner=apache_beam.runners.dataflow.DataflowRunner", True),
]


def test_few_images_on_a_disk_of_this_machine_need_no_beam() -> None:
    def start_beam() -> beam.Pipeline:
        raise InterruptedError

    for images, target, options, starts in RUNS:
        work = Work(1)
        with pytest.raises(InterruptedError) if starts else contextlib.nullcontext():
            work.run([0.0], start_beam, options.split(), target=target, images=images)
        assert work.written == ([] if starts else [0.0]), (images, target, options)


class Mistake(ConcurrentDoFn):
    def work(self, element: int) -> None:
        raise DataError("Add images.")


@pytest.mark.parametrize("images", [1, None])
def test_beam_does_not_change_messages_for_users(images: int | None) -> None:
    options = ["--runner=FnApiRunner", "--direct_running_mode=in_memory"]
    with pytest.raises(DataError, match=r"^Add images\.$"):
        Mistake(1).run(
            [1], lambda: beam.Pipeline(argv=options), options, target=DISK, images=images
        )
