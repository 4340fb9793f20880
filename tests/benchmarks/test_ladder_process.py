from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from benchmarks.ladder.process import Answers, RungProcess
from benchmarks.measuring.process import MeasurementError


def prepare() -> Answers:
    """Count in a thread, as a reader that makes batches ahead goes on by itself."""
    counter = itertools.count()

    def count() -> None:
        for _ in counter:
            time.sleep(0.001)

    threading.Thread(target=count, daemon=True).start()
    return {"count": lambda: next(counter), "add": lambda a, b: a + b, "divide": lambda a: a / 0}


@pytest.fixture
def start() -> Iterator[Callable[..., RungProcess]]:
    started = []

    def make(prepare: Callable[[], Answers]) -> RungProcess:
        started.append(RungProcess("a rung", prepare))
        return started[-1]

    yield make
    for process in started:
        process.end()


def test_nothing_goes_on_between_questions(start: Callable[..., RungProcess]) -> None:
    process = start(prepare)
    before = process.ask("count")
    time.sleep(0.2)
    # What a thread would have done in that time is 200; it stood still for nearly all of it.
    assert process.ask("count") - before < 100
    assert process.ask("add", 1, 2) == 3


def test_a_failure_is_told_and_the_process_goes_on(start: Callable[..., RungProcess]) -> None:
    process = start(prepare)
    with pytest.raises(MeasurementError, match="a rung: ZeroDivisionError: division by zero"):
        process.ask("divide", 1)
    assert process.ask("add", 1, 1) == 2


def test_a_process_that_ends_is_told(start: Callable[..., RungProcess]) -> None:
    def end() -> Answers:
        raise SystemExit

    with pytest.raises(MeasurementError, match="the process of a rung has ended"):
        start(end).ask("count")
