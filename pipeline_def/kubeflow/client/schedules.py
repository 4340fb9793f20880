"""Recurring runs of Kubeflow Pipelines, by a cron expression."""

import contextlib

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.follow import RUN_ENDS
from pipeline_def.kubeflow.client.runs import (
    Row,
    RunRequest,
    find_experiment,
    list_runs,
    prepare_run,
)

_SERVICE, _METHOD = "RecurringRunServiceApi", "recurring_run_service"


def read_cron(text: str) -> str:
    """Return a cron expression in Kubeflow's form, which starts with seconds.

    Kubeflow accepts five fields as well, but takes minutes, the first of them, for seconds.
    """
    fields = text.split()
    if len(fields) == 5:
        return " ".join(["0", *fields])
    if len(fields) != 6 and not text.startswith("@"):
        raise ConfigurationError(
            f"--cron is {text!r}: write minute, hour, day of the month, month and day of the week, "
            'such as "0 3 * * *" for every night at 3, or @every 6h.'
        )
    return text


def add_schedule(api: Api, request: RunRequest, cron: str) -> Row:
    """Upload the specification and run it by `cron`, with seconds; one run at a time.

    Missed times are not made up for: each run takes the newest data. The name must be new.
    """
    existing: list[Row] = []
    # The first run or schedule creates the experiment.
    with contextlib.suppress(ConfigurationError):
        existing = list_schedules(api, request.experiment)
    if any(schedule.get("display_name") == request.name for schedule in existing):
        raise ConfigurationError(
            f"The schedule {request.name} exists: remove it with `kfp_runner.py schedule --remove "
            f"{request.name}`, or choose another --name."
        )
    body = prepare_run(api, request)
    body |= {
        "trigger": {"cron_schedule": {"cron": cron}},
        "mode": "ENABLE",
        "max_concurrency": "1",
        "no_catchup": True,
    }
    created: Row = api.call(
        _SERVICE, f"{_METHOD}_create_recurring_run", "create the schedule", body
    )
    return created


def list_schedules(api: Api, experiment: str) -> list[Row]:
    """Return the schedules of an experiment, as the API describes them."""
    query = {"experiment_id": find_experiment(api, experiment), "page_size": 200}
    listed = api.call(_SERVICE, f"{_METHOD}_list_recurring_runs", "list schedules", **query)
    return list(listed.get("recurringRuns") or [])


def remove_schedule(api: Api, experiment: str, name: str) -> None:
    """Delete the schedule with this name or ID.

    Kubernetes deletes the run in progress together with its schedule.

    Raises:
        ConfigurationError: There is no such schedule, or its run is in progress. No further run
            starts then.
    """
    keys = ("display_name", "recurring_run_id")
    schedules = list_schedules(api, experiment)
    wanted = [s["recurring_run_id"] for s in schedules if name in map(s.get, keys)]
    if not wanted:
        raise ConfigurationError(
            f"The experiment {experiment} has no schedule {name}: see `kfp_runner.py schedule "
            "--list`."
        )
    action = f"remove the schedule {name}"
    for schedule_id in wanted:
        api.call(_SERVICE, f"{_METHOD}_disable_recurring_run", action, schedule_id)
        runs = list_runs(api, experiment, 200)
        started = (run for run in runs if run.get("recurring_run_id") == schedule_id)
        if active := [run["run_id"] for run in started if run["state"] not in RUN_ENDS]:
            raise ConfigurationError(
                f"The schedule {name} starts no more runs, but removing it would destroy its run "
                f"{active[0]}, which is in progress: wait for its end or use `kfp_runner.py stop "
                f"{active[0]}`, then remove the schedule again."
            )
        api.call(_SERVICE, f"{_METHOD}_delete_recurring_run", action, schedule_id)


def describe_schedule(schedule: Row) -> tuple[str, str, str, str]:
    """Return name, cron expression with seconds, on or off, and ID."""
    cron = ((schedule.get("trigger") or {}).get("cron_schedule") or {}).get("cron", "")
    state = "off" if schedule.get("status") == "DISABLED" else "on"
    return schedule.get("display_name", ""), cron, state, schedule["recurring_run_id"]
