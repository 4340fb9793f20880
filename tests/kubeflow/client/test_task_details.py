"""States and pods of tasks among the nodes that the API lists, as 2.17 and earlier releases do."""

from __future__ import annotations

import pytest

from pipeline_def.kubeflow.client.task_details import find_pods, node_id, read_view
from tests.kubeflow.client.argo_nodes import WORKFLOW, Task, identifier, listed, pod_of

STAGES = {
    "data": ("ImageExampleGen-lookup", "ImageExampleGen", "StatisticsGen", "SchemaGen"),
    # A stage and its step differ by the case of one letter.
    "transform": ("Transform",),
    "evaluate": ("BaselineFinder-lookup", "BaselineFinder", "Evaluator"),
}
TASKS = tuple(name for names in STAGES.values() for name in names)


def done(seconds: int = 20) -> Task:
    return Task("SUCCEEDED", 10, 10 + seconds)


def test_identifiers_are_those_of_a_real_run() -> None:
    assert node_id("images-g9nxq", "images-g9nxq(0).root") == "images-g9nxq-3265824692"


@pytest.mark.parametrize("repeated", [True, False], ids=["2.17", "2.14"])
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "in stages"])
@pytest.mark.parametrize("outcome", ["first", "cached", "failed"])
def test_states_and_pods_of_all_tasks(outcome: str, nested: bool, repeated: bool) -> None:
    """As in the real responses for these three runs."""
    tasks = {
        "first": {name: done() for name in TASKS},
        "cached": {n: done() if n.endswith("-lookup") else Task("CACHED") for n in TASKS},
        "failed": {n: Task("FAILED", 10, 500) if n == TASKS[0] else Task("") for n in TASKS},
    }[outcome]
    state = "FAILED" if outcome == "failed" else "SUCCEEDED"
    given = tasks
    if nested:
        given = {
            stage: Task(state, 5, inner={name: tasks[name] for name in names})
            for stage, names in STAGES.items()
        }
    run = listed(given, state, repeated=repeated)
    view = read_view(run, TASKS)
    assert view.state == state
    assert {task.name: task.state for task in view.tasks} == {
        name: task.state for name, task in tasks.items()
    }
    assert {task.seconds for task in view.tasks} == {
        "first": {20.0},
        "cached": {20.0, None},
        "failed": {490.0, None},
    }[outcome]
    stage = ("data",) if nested else ()
    path = "".join(f".{name}" for name in (*stage, TASKS[0]))
    old = identifier(f"{WORKFLOW}.root{path}.executor")
    assert find_pods(run)[TASKS[0]] == (pod_of(*stage, TASKS[0]) if repeated else old)


@pytest.mark.parametrize(
    ("attempts", "state", "last"),
    [
        (("PENDING",), "PENDING", 0),
        (("FAILED", "RUNNING"), "RUNNING", 1),
        (("FAILED", "SUCCEEDED"), "SUCCEEDED", 1),
        (("FAILED", "FAILED", "FAILED"), "FAILED", 2),
    ],
)
def test_retries_of_a_task(attempts: tuple[str, ...], state: str, last: int) -> None:
    """The last attempt has the log. Tasks are in the order in which they started."""
    task = Task("RUNNING" if state == "PENDING" else state, 10, attempts=attempts)
    run = listed(
        {"Trainer": task, "Pusher": Task("RUNNING", 300), "Transform": Task(start=20, end=30)}
    )
    view = read_view(run, ("Pusher", "Trainer", "Transform"))
    assert [(one.name, one.state) for one in view.tasks] == [
        ("Trainer", state),
        ("Transform", "SUCCEEDED"),
        ("Pusher", "RUNNING"),
    ]
    assert find_pods(run)["Trainer"] == pod_of("Trainer", attempt=last)


def test_drivers_that_wait_or_fail() -> None:
    """A step, and a stage or the run before any of its steps, may fail in its driver."""
    waits, failed = Task("", driver="PENDING"), Task("", driver="FAILED")
    run = listed({"a": waits, "b": failed, "stage": failed, "c": Task("")}, "FAILED")
    states = {task.name: task.state for task in read_view(run, ("a", "b", "c", "d")).tasks}
    assert states == {"a": "PENDING", "b": "FAILED", "c": "", "d": "", "stage": "FAILED"}
    assert find_pods(run)["b"] == identifier(f"{WORKFLOW}(0).root(0).b-driver(0)")


@pytest.mark.parametrize("run", [{"state": "PENDING"}, {"run_details": {"task_details": None}}])
def test_a_run_without_tasks(run: dict[str, object]) -> None:
    view = read_view(run, ("a",))
    assert (view.state, [task.state for task in view.tasks]) == ("PENDING", [""])
    assert find_pods(run) == {}
