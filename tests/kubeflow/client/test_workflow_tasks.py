"""The pipeline's tasks among the nodes that the API lists, in the shape of 2.17 and before."""

from __future__ import annotations

import doctest

import pytest

from pipeline_def.kubeflow.client import workflow_nodes
from pipeline_def.kubeflow.client.workflow_tasks import run_view
from tests.kubeflow.client.argo_nodes import TASKS, WORKFLOW, Task, identifier, listed

LOOKUPS = tuple(name for name in TASKS if name.endswith("-lookup"))
STAGES = {"Data": TASKS[:4], "Transform-stage": TASKS[4:5], "Rest": TASKS[5:]}


def test_identifiers_are_those_of_a_real_run() -> None:
    """The docstring's example is from an answer of the API server of 2.17.0."""
    assert doctest.testmod(workflow_nodes) == (0, 1)


def states(
    tasks: dict[str, Task], state: str = "RUNNING", *, repeated: bool = True
) -> dict[str, str]:
    """Return task → state, each task once."""
    view = run_view(listed(tasks, state, repeated=repeated))
    assert view.state == state
    found = {task.name: task.state for task in view.tasks}
    assert len(found) == len(view.tasks)
    return found


def done(seconds: int = 20) -> Task:
    return Task("SUCCEEDED", 10, 10 + seconds)


@pytest.mark.parametrize("repeated", [True, False], ids=["2.17", "2.14"])
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "in groups"])
def test_exactly_the_pipelines_tasks_come_out(repeated: bool, nested: bool) -> None:
    """As the real answers for a first run, a cached one and one that failed at its first task."""
    first = {name: done() for name in TASKS}
    second = {name: done() if name in LOOKUPS else Task("CACHED", 10) for name in TASKS}
    failed = {name: Task("FAILED", 10, 500) if name == TASKS[0] else Task("") for name in TASKS}
    for tasks, state in ((first, "SUCCEEDED"), (second, "SUCCEEDED"), (failed, "FAILED")):
        given = tasks
        if nested:
            given = {
                stage: Task(state, 5, inner={name: tasks[name] for name in names})
                for stage, names in STAGES.items()
            }
        found = states(given, state, repeated=repeated)
        assert found == {name: task.state for name, task in tasks.items()}


def test_the_tasks_are_in_the_order_in_which_they_began() -> None:
    tasks = {"b": Task("SUCCEEDED", 30, 40), "c": Task(""), "a": Task("SUCCEEDED", 10, 30)}
    assert list(states(tasks)) == ["a", "b", "c"]


def test_an_exit_handler_does_not_hide_what_failed() -> None:
    """The group of the handler fails with its task, and the task at exit runs nevertheless."""
    group = Task(
        "FAILED",
        inner={"train": Task("FAILED", 20, 50), "before": done()},
        at_exit={"notify": Task("SUCCEEDED", 60, 70)},
    )
    found = states({"exit-handler-1": group}, "FAILED")
    assert found == {"train": "FAILED", "before": "SUCCEEDED", "notify": "SUCCEEDED"}


@pytest.mark.parametrize(
    ("attempts", "state", "last"),
    [
        (("FAILED", "RUNNING"), "RUNNING", 1),
        (("FAILED", "PENDING"), "PENDING", 1),
        (("PENDING",), "PENDING", 0),
        (("FAILED", "SUCCEEDED"), "SUCCEEDED", 1),
        (("FAILED", "FAILED", "FAILED"), "FAILED", 2),
    ],
)
def test_a_task_that_is_tried_again(attempts: tuple[str, ...], state: str, last: int) -> None:
    """Its state is that of the last attempt, whose pod has the log to read."""
    task = Task("RUNNING" if state == "PENDING" else state, 10, attempts=attempts)
    others = {"Pusher": Task("RUNNING", 300), "Transform": done()}
    view = run_view(listed({"Trainer": task, **others}))
    [trainer] = [one for one in view.tasks if one.name == "Trainer"]
    assert trainer.state == state
    name = f"{WORKFLOW}(0).root(0).Trainer(0).executor({last})"
    assert trainer.node == identifier(name)


def test_what_waits_for_its_preparation_or_fails_there() -> None:
    waits, failed = Task("", 10, driver="PENDING"), Task("", 10, driver="FAILED")
    assert states({"a": waits, "b": failed}) == {"a": "PENDING", "b (its preparation)": "FAILED"}
    view = run_view(listed({"b": failed}))
    assert view.tasks[0].node == identifier(f"{WORKFLOW}(0).root(0).b-driver(0)")
