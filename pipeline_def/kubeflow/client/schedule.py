"""Runs that start by themselves: recurring runs of Kubeflow Pipelines, by a cron expression."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.run import RunRequest
from pipeline_def.kubeflow.client.uploads import field_of, find_experiment, request_body

_FIELD = re.compile(r"[\d*/,?\-]+|[A-Za-z]{3}([-,][A-Za-z]{3})*")
_EVERY = re.compile(r"@(every \d\S*|hourly|daily|midnight|weekly|monthly|yearly|annually)")


@dataclass(frozen=True)
class Schedule:
    """A recurring run."""

    schedule_id: str
    name: str
    cron: str
    enabled: bool


def read_cron(text: str) -> str:
    """Return a cron expression as Kubeflow reads it: with the seconds first.

    It reads the five usual fields too, but takes the first of them, minutes, for seconds.

    Raises:
        ConfigurationError: it is no cron expression.
    """
    fields = text.split()
    if _EVERY.fullmatch(text):
        return text
    if len(fields) not in (5, 6) or not all(_FIELD.fullmatch(one) for one in fields):
        raise ConfigurationError(
            f"--cron is {text!r}: write minute, hour, day of the month, month and day of the week, "
            'such as "0 3 * * *" for every night at 3, or @every 6h.'
        )
    return " ".join(fields if len(fields) == 6 else ["0", *fields])


def add_schedule(
    api: Api, request: RunRequest, cron: str, *, experiment: str, version: str | None
) -> Schedule:
    """Upload the specification and have it run whenever `cron` says, one run at a time.

    Times that pass while the cluster is away are not made up for: a run takes the newest data.

    Raises:
        ConfigurationError: the experiment has a schedule of this name.
    """
    cron = read_cron(cron)
    there: list[Schedule] = []
    # An experiment that does not exist yet is made with the first run or schedule.
    with contextlib.suppress(ConfigurationError):
        there = list_schedules(api, experiment)
    if any(one.name == request.name for one in there):
        raise ConfigurationError(
            f"There is a schedule {request.name} already: remove it with `kfp_runner.py schedule "
            f"--remove {request.name}`, or choose another --name."
        )
    body, _ = request_body(api, request, experiment=experiment, version=version)
    body |= {
        "trigger": {"cron_schedule": {"cron": cron}},
        "mode": "ENABLE",
        "max_concurrency": "1",
        "no_catchup": True,
    }
    made = _call(api, "create_recurring_run", "make the schedule", body)
    return _schedule(made, api)


def list_schedules(api: Api, experiment: str) -> list[Schedule]:
    """Return the schedules of an experiment."""
    parent = find_experiment(api, experiment)
    listed = _call(
        api, "list_recurring_runs", "list schedules", experiment_id=parent, page_size=200
    )
    return [_schedule(one, api) for one in listed.get("recurringRuns") or []]


def remove_schedule(api: Api, experiment: str, name: str) -> None:
    """Delete the schedule `name`; runs that it has started go on.

    Raises:
        ConfigurationError: there is none of this name.
    """
    found = [one for one in list_schedules(api, experiment) if name in (one.name, one.schedule_id)]
    if not found:
        raise ConfigurationError(
            f"The experiment {experiment} has no schedule {name}: `kfp_runner.py schedule --list` "
            "names them."
        )
    for one in found:
        _call(api, "delete_recurring_run", f"remove the schedule {name}", one.schedule_id)


def _schedule(answer: dict[str, Any], api: Api) -> Schedule:
    trigger = answer.get("trigger") or {}
    return Schedule(
        field_of(answer, "recurring_run_id", api),
        str(answer.get("display_name", "")),
        str((trigger.get("cron_schedule") or {}).get("cron", "")),
        answer.get("status") != "DISABLED",
    )


def _call(api: Api, method: str, action: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    service = "RecurringRunServiceApi"
    found: dict[str, Any] = api.call(
        service, f"recurring_run_service_{method}", action, *args, **kwargs
    )
    return found
