"""Starts a run of a compiled specification on open-source Kubeflow Pipelines, and follows it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.connection import Connection
from pipeline_def.kubeflow.client.run import RunRequest, RunView, StartedRun
from pipeline_def.kubeflow.client.run_follower import RUN_ENDS, failed_task, follow, ignore
from pipeline_def.kubeflow.client.task_log import find_sentence, read_log
from pipeline_def.kubeflow.client.uploads import field_of, request_body
from pipeline_def.kubeflow.client.workflow_tasks import run_view

# The SDK's variable for a UI that has another address than the API.
_UI_VARIABLE = "KF_PIPELINES_UI_ENDPOINT"


def start_run(
    connection: Connection, request: RunRequest, *, experiment: str, version: str | None = None
) -> StartedRun:
    """Upload the specification as a new version of its pipeline and start a run of this version.

    Raises:
        UserError: The API cannot be reached or refuses, or the version exists already.
    """
    with Api(connection) as api:
        body, name = request_body(api, request, experiment=experiment, version=version)
        run = api.call("RunServiceApi", "run_service_create_run", "start a run", body)
        run_id = field_of(run, "run_id", api)
    return StartedRun(run_id, run_url(connection, run_id), name)


def run_url(connection: Connection, run_id: str) -> str:
    """Return the address of the run's page, as the SDK builds it."""
    base = os.environ.get(_UI_VARIABLE, "").rstrip("/") or connection.address()
    return f"{base}/#/runs/details/{run_id}"


def follow_run(
    connection: Connection,
    run_id: str,
    write: Callable[[str], None],
    *,
    see: Callable[[RunView], None] = ignore,
    changes: bool = True,
    interval: float = 10.0,
) -> str:
    """Follow a run as `run_follower.follow` does; a task that failed tells its own sentence."""
    url, hint = run_url(connection, run_id), _pending_hint(connection, run_id)
    with Api(connection) as api:
        read = functools.partial(read_run, api, run_id)
        return follow(read, write, url=url, interval=interval, see=see, hint=hint, changes=changes)


def read_run(api: Api, run_id: str) -> RunView:
    """Read a run; where it has failed, with the reason from the log of the task to blame."""
    run = api.call("RunServiceApi", "run_service_get_run", f"read the run {run_id}", run_id)
    view = run_view(run)
    task = failed_task(view) if view.state in RUN_ENDS else None
    if task is None or task.error or not task.node:
        return view
    # The log is a kindness: without it the run has failed all the same.
    with contextlib.suppress(ServiceError):
        log = read_log(api, {"run_id": run_id, **run}, task.node)
        told = dataclasses.replace(task, error=find_sentence(log, task.name))
        tasks = tuple(told if one is task else one for one in view.tasks)
        return dataclasses.replace(view, tasks=tasks)
    return view


def _pending_hint(connection: Connection, run_id: str) -> str:
    namespace = connection.namespace or "kubeflow"
    pods = f"kubectl --namespace {namespace} describe pods --selector pipeline/runid={run_id}"
    return (
        "its pod may wait for its image (a wrong name, or a registry that wants credentials), for "
        f"a secret, a volume, or a node with room for it; `{pods}` tells."
    )
