"""States of a run and its tasks in what the API answers, as 2.17 and earlier releases do."""

from typing import Any

import pytest

from pipeline_def.kubeflow.client.follow import read_state, read_view
from tests.kubeflow.client.kfp_server import nodes

# Excerpts of real answers of Kubeflow Pipelines 2.17.
STOPPED = (
    "images-6dgjr FAILED 0 81",
    "root-driver SUCCEEDED 0 10",
    "root-driver(0) SUCCEEDED 0 4",
    "root FAILED 10 81",
    "ImageExampleGen-lookup-driver SUCCEEDED 20 30",
    "ImageExampleGen-lookup-driver(0) SUCCEEDED 20 24",
    "ImageExampleGen-lookup SUCCEEDED 30 50",
    "executor SUCCEEDED 30 50",
    "executor(0) SUCCEEDED 30 39",
    "ImageExampleGen-driver SUCCEEDED 50 61",
    "ImageExampleGen FAILED 61 81",
    "ImageExampleGen(0) FAILED 61 81",
    "executor FAILED 61 81",
    "executor(0) FAILED 61 72",
    "StatisticsGen - 81 81",
)
CACHED = (
    "ImageExampleGen-lookup-driver SUCCEEDED 20 30",
    "ImageExampleGen-lookup SUCCEEDED 30 40",
    "executor SUCCEEDED 30 40",
    "executor(0) SUCCEEDED 30 36",
    "ImageExampleGen-driver SUCCEEDED 40 50",
    "ImageExampleGen SUCCEEDED 50 50",
    "ImageExampleGen(0) SUCCEEDED 50 50",
    "executor SKIPPED 50 50",
)


def states(run: dict[str, Any], *names: str) -> list[tuple[str, str, float | None]]:
    return [(task.name, task.state, task.seconds) for task in read_view(run, names).tasks]


def test_a_stopped_run_and_its_task_are_not_failed() -> None:
    run = nodes("FAILED", *STOPPED, stopped=65)
    names = ("StatisticsGen", "ImageExampleGen", "ImageExampleGen-lookup")
    view = read_view(run, names)
    assert (read_state(run), view.state, view.failed_task()) == ("CANCELED", "CANCELED", None)
    assert [(task.name, task.state) for task in view.tasks] == [
        ("ImageExampleGen-lookup", "SUCCEEDED"),
        ("ImageExampleGen", "CANCELED"),
        ("StatisticsGen", ""),
    ]
    # A task that failed before somebody stopped the run is the reason why.
    failed = read_view(nodes("FAILED", *STOPPED, stopped=87), names).failed_task()
    assert failed is not None
    assert failed.name == "ImageExampleGen"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            CACHED,
            [("ImageExampleGen-lookup", "SUCCEEDED", 10), ("ImageExampleGen", "CACHED", None)],
        ),
        # Releases before 2.17 list no attempts.
        (("Gen RUNNING 10 -", "executor RUNNING 10 -"), [("Gen", "RUNNING", None)]),
        (("Gen FAILED 10 500", "executor FAILED 10 500"), [("Gen", "FAILED", 490)]),
        # A pod that waits, alone or after another attempt.
        (
            ("T RUNNING 9 -", "executor RUNNING 9 -", "executor(0) PENDING 9 -"),
            [("T", "PENDING", None)],
        ),
        (
            ("T RUNNING 9 -", "executor(0) FAILED 9 69", "executor(1) RUNNING 70 -"),
            [("T", "RUNNING", None)],
        ),
        # Tasks are in the order in which they started.
        (
            ("P RUNNING 300 -", "T SUCCEEDED 20 30"),
            [("T", "SUCCEEDED", 10), ("P", "RUNNING", None)],
        ),
        # Drivers that wait or fail, before the task exists.
        (("Gen-driver(0) PENDING 1 -",), [("Gen", "PENDING", None)]),
        (("Gen-driver FAILED 1 9",), [("Gen", "FAILED", 8)]),
        (("root-driver FAILED 1 9",), [("root", "FAILED", 8)]),
        ((), []),
    ],
)
def test_the_states_of_tasks(
    rows: tuple[str, ...], expected: list[tuple[str, str, float | None]]
) -> None:
    assert states(nodes("RUNNING", *rows), *(name for name, *_ in expected)) == expected
