"""States and pods of tasks among the nodes that the API lists, as 2.17 and earlier releases do."""

from typing import Any

import pytest

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.client import run as client_run
from pipeline_def.kubeflow.client.run import RunFollower, StartedRun
from pipeline_def.kubeflow.client.task_details import find_pod, read_state, read_view
from tests.kubeflow.client.argo_nodes import (
    WORKFLOW,
    Task,
    identifier,
    listed,
    listed_natively,
    pod_of,
)

# Excerpts of real responses of Kubeflow Pipelines 2.17: name, state, start, end, and the numbers of
# child nodes.
STOPPED = """
images-6dgjr FAILED 06:34:53 06:36:14 1490975060
images-6dgjr(0) FAILED 06:34:53 06:36:14 2396325295
root-driver SUCCEEDED 06:34:53 06:35:03 1812379314
root-driver(0) SUCCEEDED 06:34:53 06:34:57 3921033786
data-driver SUCCEEDED 06:35:03 06:35:13 2546709725
data-driver(0) SUCCEEDED 06:35:03 06:35:07 56081117
root FAILED 06:35:03 06:36:14 4098981985
root(0) FAILED 06:35:03 06:36:14 773270318
ImageExampleGen-lookup-driver SUCCEEDED 06:35:13 06:35:23 291320348
ImageExampleGen-lookup-driver(0) SUCCEEDED 06:35:13 06:35:17 121205200
data FAILED 06:35:13 06:36:14 1466143340
data(0) FAILED 06:35:13 06:36:14 2036182861 2485743012 80684023 2907864260
ImageExampleGen-lookup SUCCEEDED 06:35:23 06:35:43 1982680179
ImageExampleGen-lookup(0) SUCCEEDED 06:35:23 06:35:43 1495255498 2087374400
executor SUCCEEDED 06:35:23 06:35:43 3170656113
executor(0) SUCCEEDED 06:35:23 06:35:32
ImageExampleGen-driver SUCCEEDED 06:35:43 06:35:54 3147195427
ImageExampleGen-driver(0) SUCCEEDED 06:35:43 06:35:47 1682728679
ImageExampleGen FAILED 06:35:54 06:36:14 3580280730
ImageExampleGen(0) FAILED 06:35:54 06:36:14 437555329 4235842346
executor FAILED 06:35:54 06:36:14 4068038872
executor(0) FAILED 06:35:54 06:36:05
"""
CACHED = """
images-c628z SUCCEEDED 06:37:22 06:41:24 3676547700
images-c628z(0) SUCCEEDED 06:37:22 06:41:24 59456079
root-driver SUCCEEDED 06:37:22 06:37:32 2231541458
root-driver(0) SUCCEEDED 06:37:22 06:37:26 4055798234
data-driver SUCCEEDED 06:37:32 06:37:42 733517565
data-driver(0) SUCCEEDED 06:37:32 06:37:36 3397930109
root SUCCEEDED 06:37:32 06:41:24 2530598913
root(0) SUCCEEDED 06:37:32 06:41:24 2607267918
ImageExampleGen-lookup-driver SUCCEEDED 06:37:42 06:37:52 1504364540
ImageExampleGen-lookup-driver(0) SUCCEEDED 06:37:42 06:37:45 1123518768
data SUCCEEDED 06:37:42 06:39:02 3307372300
data(0) SUCCEEDED 06:37:42 06:39:02 630666413 3656139332 1890328855 53717860
ImageExampleGen-lookup SUCCEEDED 06:37:52 06:38:02 2825365587
ImageExampleGen-lookup(0) SUCCEEDED 06:37:52 06:38:02 2264385578 2347460512
executor SUCCEEDED 06:37:52 06:38:02 2182427601
executor(0) SUCCEEDED 06:37:52 06:37:58
ImageExampleGen-driver SUCCEEDED 06:38:02 06:38:12 3300054531
ImageExampleGen-driver(0) SUCCEEDED 06:38:02 06:38:05 166926535
ImageExampleGen SUCCEEDED 06:38:12 06:38:12 4092219386
ImageExampleGen(0) SUCCEEDED 06:38:12 06:38:12 1897998305 2239827530
StatisticsGen-driver SUCCEEDED 06:38:12 06:38:22 1264644337
StatisticsGen-driver(0) SUCCEEDED 06:38:12 06:38:16 4280217809
executor SKIPPED 06:38:12 06:38:12
"""
# Its workflow was deleted with the schedule that had started it.
ORPHANED = """
root RUNNING 06:28:40 00:00:00 1571612001
data RUNNING 06:28:50 00:00:00 463902572
StatisticsGen SUCCEEDED 06:29:42 06:29:42 155833352
SchemaGen-driver SUCCEEDED 06:29:42 06:29:52 3622799553
SchemaGen RUNNING 06:29:52 00:00:00 3629632888
executor RUNNING 06:29:52 00:00:00 708452824
executor(0) RUNNING 06:29:52 00:00:00
"""


def response(workflow: str, rows: str, *history: tuple[str, str]) -> dict[str, Any]:
    """Return the API's response that an excerpt is of, with the times and states of the run."""
    details = []
    for line in rows.strip().splitlines():
        name, state, start, end, *children = line.split()
        nodes = [{"pod_name": f"{workflow}-{number}"} for number in children]
        times = {"start_time": stamp(start), "end_time": stamp(end)}
        details.append({"display_name": name, "state": state, "child_tasks": nodes, **times})
    states = [{"update_time": stamp(time), "state": state} for time, state in history]
    run_details = {"task_details": details}
    return {"state": history[-1][1], "state_history": states, "run_details": run_details}


def stamp(time: str) -> str:
    return f"2026-11-23T{time}Z"


def test_a_stopped_run_and_its_task_are_not_failed() -> None:
    ends = ("06:34:54", "RUNNING"), ("06:35:58", "CANCELING"), ("06:36:15", "FAILED")
    run = response("images-6dgjr", STOPPED, *ends)
    view = read_view(run, ("StatisticsGen", "ImageExampleGen", "ImageExampleGen-lookup"))
    assert (read_state(run), view.state, view.failed_task()) == ("CANCELED", "CANCELED", None)
    assert [(task.name, task.state) for task in view.tasks] == [
        ("ImageExampleGen-lookup", "SUCCEEDED"),
        ("ImageExampleGen", "CANCELED"),
        ("StatisticsGen", ""),
    ]
    assert find_pod(run, "ImageExampleGen") == "images-6dgjr-4068038872"
    # A task that failed before somebody stopped the run is the reason why.
    late = response("images-6dgjr", STOPPED, ends[0], ("06:36:20", "CANCELING"), ends[2])
    failed = read_view(late, ("ImageExampleGen",)).failed_task()
    assert failed is not None
    assert failed.name == "ImageExampleGen"


@pytest.mark.parametrize(("state", "steps"), [("CANCELING", 2), ("RUNNING", 1)])
def test_a_run_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, state: str, steps: int
) -> None:
    monkeypatch.setattr(client_run, "_LONGEST_STANDSTILL", 0.02)
    run = response("nightly", ORPHANED, ("06:28:31", state))
    view = read_view(run, ("StatisticsGen", "SchemaGen", "Pusher")[:steps])
    followed = StartedRun("id", "https://kfp/#/runs/id", lambda: view)
    with pytest.raises(ServiceError, match=rf"has been {state} for .* may have been deleted"):
        RunFollower(followed, list[str]().append, interval=0.01).follow()


def test_a_run_with_a_task_in_progress_does_not_stand_still() -> None:
    run = response("nightly", ORPHANED, ("06:28:31", "RUNNING"))
    assert not read_view(run, ("StatisticsGen", "SchemaGen")).stands_still()
    # It may wait for room in the cluster.
    assert not read_view(run, ("Pusher",)).stands_still()


def test_a_task_from_the_cache() -> None:
    run = response("images-c628z", CACHED, ("06:37:23", "RUNNING"))
    view = read_view(run, ("ImageExampleGen-lookup", "ImageExampleGen"))
    assert [(t.state, t.seconds) for t in view.tasks] == [("SUCCEEDED", 10.0), ("CACHED", None)]
    assert find_pod(run, "ImageExampleGen-lookup") == "images-c628z-2182427601"


def test_releases_before_2_17_list_no_attempts() -> None:
    tasks = {"data": Task(inner={"Gen": Task("RUNNING")}), "train": Task("FAILED", 10, 500)}
    run = listed(tasks, "FAILED", repeated=False)
    assert [
        (task.name, task.state, task.seconds) for task in read_view(run, ("Gen", "train")).tasks
    ] == [
        ("Gen", "RUNNING", None),
        ("train", "FAILED", 490.0),
    ]
    assert find_pod(run, "Gen") == identifier(f"{WORKFLOW}.root.data.Gen.executor")
    assert find_pod(run, "train") == identifier(f"{WORKFLOW}.root.train.executor")


@pytest.mark.parametrize(
    ("attempts", "state", "last"),
    [
        (("PENDING",), "PENDING", 0),
        (("FAILED", "RUNNING"), "RUNNING", 1),
        (("FAILED", "FAILED", "FAILED"), "FAILED", 2),
    ],
)
def test_retries_of_a_task(attempts: tuple[str, ...], state: str, last: int) -> None:
    """The last attempt has the log. Tasks are in the order in which they started."""
    task = Task("RUNNING" if state == "PENDING" else state, 10, attempts=attempts)
    tasks = {"Trainer": task, "Pusher": Task("RUNNING", 300), "Transform": Task(start=20, end=30)}
    view = read_view(listed(tasks), ("Pusher", "Trainer", "Transform"))
    assert [(one.name, one.state) for one in view.tasks] == [
        ("Trainer", state),
        ("Transform", "SUCCEEDED"),
        ("Pusher", "RUNNING"),
    ]
    assert find_pod(listed(tasks), "Trainer") == pod_of("Trainer", attempt=last)


def test_drivers_that_wait_or_fail() -> None:
    """A step, and a stage or the run before any of its steps, may fail in its driver."""
    waits, failed = Task("", driver="PENDING"), Task("", driver="FAILED")
    run = listed({"a": waits, "b": failed, "stage": failed, "c": Task("")}, "FAILED")
    states = {task.name: task.state for task in read_view(run, ("a", "b", "c", "d")).tasks}
    assert states == {"a": "PENDING", "b": "FAILED", "c": "", "d": "", "stage": "FAILED"}
    assert find_pod(run, "b") == identifier(f"{WORKFLOW}(0).root(0).b-driver(0)")


@pytest.mark.parametrize("run", [{"state": "PENDING"}, {"run_details": {"task_details": None}}])
def test_a_run_without_tasks(run: dict[str, object]) -> None:
    view = read_view(run, ("a",))
    assert (view.state, [task.state for task in view.tasks]) == ("PENDING", [""])
    assert find_pod(run, "a") is None


def test_releases_without_ml_metadata_list_the_tasks_themselves() -> None:
    """As in `PipelineTask` of KFP's run.proto since its pull request 13986."""
    run = listed_natively({"Gen": "CACHED", "Train": "FAILED", "Push": "RUNNING"}, "FAILED")
    view = read_view(run, ("Push", "Gen", "Train", "Later"))
    assert [(task.name, task.state, task.seconds) for task in view.tasks] == [
        ("Gen", "CACHED", None),
        ("Train", "FAILED", 60.0),
        # KFP leaves the task of a killed pod in this state.
        ("Push", "CANCELED", None),
        ("Later", "", None),
    ]
    assert (failed := view.failed_task())
    assert failed.error == "no space left"
    assert find_pod(run, "Train") == f"{WORKFLOW}-1"
    assert find_pod(run, "Gen") == f"{WORKFLOW}-0"
    assert find_pod(run, "Later") is None
