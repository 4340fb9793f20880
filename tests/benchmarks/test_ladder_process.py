import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.ladder.rung import Answers, RungProcess
from benchmarks.measuring.process import MeasurementError


def prepare() -> Answers:
    """Count in a thread, as a reader prefetches by itself."""
    counter = itertools.count()

    def count() -> None:
        for _ in counter:
            time.sleep(0.001)

    threading.Thread(target=count, daemon=True).start()
    return {"count": lambda: next(counter), "add": lambda a, b: a + b, "end": lambda: exit()}


@pytest.fixture
def process() -> Iterator[RungProcess]:
    process = RungProcess("a rung", prepare)
    yield process
    process.end()


def test_a_process_stands_still_between_requests(process: RungProcess) -> None:
    before = process.ask("count")
    time.sleep(0.2)
    # The thread would count to 200 in that time.
    assert process.ask("count") - before < 100


def test_a_failure_is_reported_and_the_process_continues(process: RungProcess) -> None:
    with pytest.raises(MeasurementError, match="a rung: TypeError"):
        process.ask("add", 1)
    assert process.ask("add", 1, 1) == 2
    with pytest.raises(MeasurementError, match="the process of a rung has ended"):
        process.ask("end")
