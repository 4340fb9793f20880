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


class Mistake(ConcurrentDoFn):
    def work(self, element: int) -> None:
        raise DataError("Add images.")


def do(work: Work, *elements: float) -> None:
    work.start_bundle()
    for element in elements:
        list(work.process(element))
    work.finish_bundle()


def test_a_bundle_ends_when_all_its_elements_are_done() -> None:
    work = Work(2)
    do(work, 0.03, 0.0, 0.02, 0.01)
    assert sorted(work.written) == [0.0, 0.01, 0.02, 0.03]


@pytest.mark.parametrize("elements", [(-0.01, 0.1), (0.1, -0.01, 0.1)], ids=["last", "in between"])
def test_nothing_is_written_after_a_failure_is_reported(elements: tuple[float, ...]) -> None:
    work = Work(2)
    with pytest.raises(OSError, match="disk full"):
        do(work, *elements)
    reported = list(work.written)
    time.sleep(0.15)
    assert work.written == reported
    # Beam may repeat the bundle with the same object.
    do(work, 0.0)
    assert work.written == [*reported, 0.0]


def test_beam_does_not_change_messages_for_users() -> None:
    arguments = ["--runner=FnApiRunner", "--direct_running_mode=in_memory"]
    with pytest.raises(DataError) as caught, beam.Pipeline(argv=arguments) as pipeline:
        _ = pipeline | beam.Create([1], reshuffle=False) | beam.ParDo(Mistake(1))
    assert str(caught.value) == "Add images."
