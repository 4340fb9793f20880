"""Runs that are there already: lists them, stops one, and reads the log of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.run_follower import RUN_ENDS
from pipeline_def.kubeflow.client.task_log import read_log
from pipeline_def.kubeflow.client.uploads import field_of, find_experiment
from pipeline_def.kubeflow.client.workflow_tasks import run_view

_MOST_SEARCHED = 200


@dataclass(frozen=True)
class ListedRun:
    """A run in the list of an experiment."""

    run_id: str
    name: str
    state: str
    created: str
    """RFC 3339, as the API writes times; so is `finished`."""
    finished: str


def list_runs(api: Api, experiment: str, most: int) -> list[ListedRun]:
    """Return the newest runs of an experiment, the newest first."""
    parent = find_experiment(api, experiment)
    query = {"experiment_id": parent, "page_size": most, "sort_by": "created_at desc"}
    listed = api.call("RunServiceApi", "run_service_list_runs", "list runs", **query)
    return [
        ListedRun(
            field_of(run, "run_id", api),
            str(run.get("display_name", "")),
            str(run.get("state") or "PENDING"),
            str(run.get("created_at", "")),
            str(run.get("finished_at", "")) if run.get("state") in RUN_ENDS else "",
        )
        for run in listed.get("runs") or []
    ]


def find_run(api: Api, experiment: str, wanted: str | None) -> ListedRun:
    """Return the run that `wanted` names: its identifier or the beginning of it, or its name.

    Args:
        api: of the cluster.
        experiment: the name of its experiment.
        wanted: None: the newest run.

    Raises:
        ConfigurationError: there is no such run, or there are several.
    """
    runs = list_runs(api, experiment, 1 if wanted is None else _MOST_SEARCHED)
    if wanted is None and not runs:
        raise ConfigurationError(f"The experiment {experiment} has no runs.")
    found = [run for run in runs if wanted is None or _is_meant(run, wanted)]
    if len(found) != 1:
        count = f"{len(found)} runs" if found else "no run"
        raise ConfigurationError(
            f"There {'are' if found else 'is'} {count} {wanted} among the newest {len(runs)} of "
            f"the experiment {experiment}: give the identifier that `kfp_runner.py runs` lists."
        )
    return found[0]


def stop_run(api: Api, run: ListedRun) -> None:
    """Stop a run; its pods end, and its state becomes CANCELED."""
    action = f"stop the run {run.run_id}"
    api.call("RunServiceApi", "run_service_terminate_run", action, run.run_id)


def read_task_log(api: Api, run_id: str, task: str) -> str:
    """Return the log of a task of a run, as far as there is one.

    Raises:
        ConfigurationError: the run has no such task, or the task has no pod.
    """
    run = api.call("RunServiceApi", "run_service_get_run", f"read the run {run_id}", run_id)
    tasks = {view.name.partition(" (")[0]: view for view in run_view(run).tasks}
    if task not in tasks:
        raise ConfigurationError(f"The run {run_id} {_say_tasks(list(tasks), task)}.")
    view = tasks[task]
    if view.state in ("", "PENDING", "CACHED", "SKIPPED") or not view.node:
        state = view.state or "not begun"
        raise ConfigurationError(f"{task} has no log in the run {run_id}: it is {state}.")
    return read_log(api, {"run_id": run_id, **run}, view.node)


def _is_meant(run: ListedRun, wanted: str) -> bool:
    return run.name == wanted or run.run_id.startswith(wanted)


def _say_tasks(names: Sequence[str], task: str) -> str:
    if not names:
        return "has begun no task yet"
    return f"has no task {task}: its tasks are {', '.join(sorted(names))}"
