"""Start, list, read, follow and stop runs on open-source Kubeflow Pipelines."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from components.contract.errors import ConfigurationError, ServiceError
from pipeline_def.kubeflow.client.api import Api, Connection
from pipeline_def.kubeflow.client.run import RUN_ENDS, RunFollower, RunRequest, RunView, StartedRun
from pipeline_def.kubeflow.client.task_details import (
    find_pod,
    find_reason,
    read_log,
    read_state,
    read_view,
)
from pipeline_def.kubeflow.client.uploads import find_experiment, prepare_run

# The SDK's variable for an interface at another address than the API.
_UI_VARIABLE = "KF_PIPELINES_UI_ENDPOINT"
_MOST_SEARCHED = 200


@dataclass(frozen=True)
class ListedRun:
    """A run in the list of an experiment."""

    run_id: str
    name: str
    state: str
    created: str
    """RFC 3339, like `finished`."""
    finished: str
    """Empty while it runs."""
    schedule_id: str = ""
    """Of the schedule that started it, if any."""


def start_run(api: Api, request: RunRequest, *, experiment: str, version: str | None) -> StartedRun:
    """Upload the specification as a new version of its pipeline and start a run of it."""
    body = prepare_run(api, request, experiment=experiment, version=version)
    run = api.call("RunServiceApi", "run_service_create_run", "start a run", body)
    run_id = str(run["run_id"])
    return StartedRun(run_id, run_url(api.connection, run_id))


def run_url(connection: Connection, run_id: str) -> str:
    """Return the address of the run's page, as the SDK does."""
    base = os.environ.get(_UI_VARIABLE, "").rstrip("/") or connection.address()
    return f"{base}/#/runs/details/{run_id}"


def follow_run(api: Api, tasks: Collection[str], run_id: str, follower: RunFollower) -> str:
    """Follow a run with these tasks to its end and return its last known state."""
    namespace = api.connection.namespace or "kubeflow"
    pods = f"kubectl --namespace {namespace} describe pods --selector pipeline/runid={run_id}"
    follower.hint = (
        "its pod may wait for its image (wrong name, or missing credentials of the registry), a "
        f"secret, a volume, or a node with room for it; see `{pods}`."
    )
    url = run_url(api.connection, run_id)
    return follower.follow(lambda: _read_run(api, run_id, tasks), url)


def _read_run(api: Api, run_id: str, tasks: Collection[str]) -> RunView:
    """Read the state of a run; if it failed, with the reason from the log of the failed task."""
    run = _get(api, run_id)
    view = read_view(run, tasks)
    task = view.failed_task() if view.state in RUN_ENDS else None
    pod = find_pod(run, task.name) if task and not task.error else None
    if task is None or pod is None:
        return view
    # The state of the run is known without the log.
    with contextlib.suppress(ServiceError):
        reason = find_reason(read_log(api, run, pod), task.name)
        explained = dataclasses.replace(task, error=reason)
        tasks_ = tuple(explained if one is task else one for one in view.tasks)
        return dataclasses.replace(view, tasks=tasks_)
    return view


def list_runs(api: Api, experiment: str, most: int) -> list[ListedRun]:
    """Return the latest runs of an experiment, newest first."""
    query = {
        "experiment_id": find_experiment(api, experiment),
        "page_size": most,
        "sort_by": "created_at desc",
    }
    listed = api.call("RunServiceApi", "run_service_list_runs", "list runs", **query)
    return [
        ListedRun(
            str(run["run_id"]),
            str(run.get("display_name", "")),
            read_state(run),
            str(run.get("created_at", "")),
            str(run.get("finished_at", "")) if run.get("state") in RUN_ENDS else "",
            str(run.get("recurring_run_id", "")),
        )
        for run in listed.get("runs") or []
    ]


def find_run(api: Api, experiment: str, wanted: str | None) -> ListedRun:
    """Return the one run with this name, ID or beginning of an ID; None: the newest run."""
    runs = list_runs(api, experiment, 1 if wanted is None else _MOST_SEARCHED)
    if wanted is None and not runs:
        raise ConfigurationError(f"The experiment {experiment} has no runs.")
    found = [
        run for run in runs if wanted is None or run.name == wanted or run.run_id.startswith(wanted)
    ]
    if len(found) != 1:
        count = f"are {len(found)} runs" if found else "is no run"
        raise ConfigurationError(
            f"There {count} {wanted} among the latest {len(runs)} of the experiment {experiment}: "
            "use an ID from `kfp_runner.py runs`."
        )
    return found[0]


def stop_run(api: Api, run_id: str) -> None:
    """Stop a run; its pods end, and its state becomes CANCELED."""
    api.call("RunServiceApi", "run_service_terminate_run", f"stop the run {run_id}", run_id)


def read_task_log(api: Api, run_id: str, task: str) -> str:
    """Return the log of a task, as far as it exists."""
    run = _get(api, run_id)
    state = {view.name: view.state for view in read_view(run, [task]).tasks}[task]
    pod = find_pod(run, task)
    if pod is None or state in ("", "PENDING", "CACHED", "SKIPPED"):
        raise ConfigurationError(
            f"{task} has no log in the run {run_id}: it is {state or 'not started'}."
        )
    return read_log(api, run, pod)


def _get(api: Api, run_id: str) -> dict[str, Any]:
    run = api.call("RunServiceApi", "run_service_get_run", f"read the run {run_id}", run_id)
    return {"run_id": run_id, **run}
