from __future__ import annotations

from pipeline_def.training.steps.pace import Pace


def test_calls_become_about_a_second_long() -> None:
    pace = Pace(0)
    assert pace.steps(100_000) == 1
    pace.note(1, 30.0)  # with tracing
    counts = []
    for _ in range(5):
        counts.append(pace.steps(100_000))
        pace.note(counts[-1], counts[-1] * 0.001)
    assert counts == [1, 10, 100, 1000, 1000]


def test_steps_longer_than_a_second_run_one_by_one() -> None:
    pace = Pace(0)
    for _ in range(3):
        pace.note(1, 5.0)
    assert pace.steps(100) == 1


def test_a_call_ends_where_python_has_something_to_do() -> None:
    pace = Pace(8)
    pace.note(8, 0.001)
    pace.note(8, 0.001)
    assert pace.steps(100) == 8
    assert pace.steps(3) == 3
