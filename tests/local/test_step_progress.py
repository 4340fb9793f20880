from __future__ import annotations

import doctest

import pytest

from pipeline_def.local.display import step_progress
from pipeline_def.local.display.step_progress import StepProgress


def test_the_example() -> None:
    failed, tried = doctest.testmod(step_progress)
    assert tried
    assert not failed


def seconds_left(reports: list[tuple[float, float, float]], now: float) -> float | None:
    """Return the estimate at `now` after reports of (time, done, total)."""
    times = iter([*(time for time, _, _ in reports), now])
    step = StepProgress(clock=lambda: next(times))
    for _, done, total in reports:
        step.report(done, total)
    return step.seconds_left()


@pytest.mark.parametrize(
    ("reports", "now", "expected"),
    [
        pytest.param([], 0, None, id="nothing known"),
        pytest.param([(5, 1, 10)], 9, None, id="one report says nothing of the pace"),
        pytest.param([(100, 0.5, 10), (110, 1.5, 10)], 110, 85, id="fractions of epochs"),
        pytest.param([(100, 40, 60), (110, 50, 60)], 110, 10, id="resumed: 40 were done before"),
        pytest.param([(0, 1, 3), (60, 2, 3)], 80, 40, id="counts down between long epochs"),
        pytest.param([(0, 1, 3), (60, 2, 3)], 500, 0, id="never negative"),
        pytest.param([(0, 1, 3), (2, 3, 3)], 3, None, id="nothing is left"),
        pytest.param(
            [(0, 1, 30), (1, 30, 30), (20, 1, 5), (30, 2, 5)], 30, 30, id="a slower second phase"
        ),
        pytest.param(
            [(0, 1, 30), (1, 20, 30), (20, 1, 30), (30, 2, 30)], 30, 280, id="of the same length"
        ),
    ],
)
def test_the_time_that_is_left(
    reports: list[tuple[float, float, float]], now: float, expected: float | None
) -> None:
    left = seconds_left(reports, now)
    assert left == (None if expected is None else pytest.approx(expected))


def test_the_last_line_of_a_phase_is_kept_when_the_next_one_begins() -> None:
    step, lines = StepProgress(), []
    for epoch in (1, 2, 3):
        lines += step.keep(f"head {epoch}", done=epoch, total=60)
        step.report(epoch, 60)
    lines += step.keep("head 4", done=4, total=60)
    step.report(4, 60)
    step.report(0.5, 5)
    lines += step.keep("fine-tune 1", done=1, total=5)
    assert lines == ["head 3", "head 4", "fine-tune 1"]
