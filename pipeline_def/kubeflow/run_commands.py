"""The commands of `kfp_runner.py` for runs on a cluster: start, schedule, list, read and stop."""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from components.contract.errors import ConfigurationError
from components.contract.printable import format_duration
from pipeline_def.kubeflow.client import runs as client
from pipeline_def.kubeflow.client import schedules, vertex_client
from pipeline_def.kubeflow.client.run import RUN_ENDS, RunFollower, StartedRun, describe
from pipeline_def.kubeflow.run_options import (
    Parser,
    add_connection,
    add_request,
    add_target,
    connect,
    make_request,
)

_REQUIRED = {"oss": ("endpoint",), "vertex": ("project", "region")}
_STATUS = """Exit status: 0 succeeded, or started without --wait; 1 the run failed or was stopped; 2
a mistake, or the cluster cannot be reached; 130 Ctrl-C, after which the run continues."""
_INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Upload a specification as a new version of its pipeline and start a run of it."""
    parser = Parser(prog="kfp_runner.py run", description=run.__doc__, epilog=_STATUS)
    add_target(parser)
    add_request(parser)
    add = parser.add_argument
    add("--run-name", help="Name of the run. Default: pipeline and time.")
    add("--wait", action="store_true", help="Follow the run; the exit status says how it ended.")
    add_connection(parser, required=False)
    vertex = parser.add_argument_group("Vertex AI")
    vertex.add_argument("--project", help="Google Cloud project.")
    vertex.add_argument("--region", help="Region, such as europe-west4.")
    own = parser.parse_args(arguments)
    for name in _REQUIRED[own.target]:
        if not getattr(own, name):
            raise ConfigurationError(f"--{name} is missing: --target {own.target} needs it.")
    request = make_request(own, own.run_name, target=own.target)
    if own.target == "vertex":
        if not (request.pipeline_root or request.documents[0].get("defaultPipelineRoot")):
            raise ConfigurationError("--pipeline-root is missing: Vertex AI needs a gs:// folder.")
        location = vertex_client.Location(own.project, own.region)
        return _report(vertex_client.start_run(location, request), wait=own.wait)
    with connect(own) as api:
        return _report(client.start_run(api, request), wait=own.wait)


def _report(started: StartedRun, *, wait: bool) -> int:
    """Print where a run is, and follow it if asked to; return 1 if it failed."""
    print(f"Run: {started.run_id}\n{started.url}", flush=True)
    if not wait:
        return 0
    state = RunFollower(started, functools.partial(print, flush=True)).follow()
    if state not in RUN_ENDS:
        return _INTERRUPTED
    return 0 if state in ("SUCCEEDED", "SKIPPED") else 1


def schedule(arguments: list[str]) -> int:
    """Run a specification at the times of a cron expression, on the newest data."""
    parser = Parser(prog="kfp_runner.py schedule", description=schedule.__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--cron",
        help='Minute, hour, day, month and day of the week, in the cluster\'s time: "0 3 * * *".',
    )
    what.add_argument("--list", action="store_true", help="List the schedules.")
    what.add_argument("--remove", metavar="NAME", help="Remove a schedule.")
    parser.add_argument("--name", help="Name of the schedule. Default: that of the pipeline.")
    add_request(parser)
    add_connection(parser)
    own = parser.parse_args(arguments)

    from pipeline_def.runs.table import print_table

    if own.cron is not None:
        schedules.read_cron(own.cron)
        request = make_request(own, own.name, target="oss")
        pipeline = request.documents[0]["pipelineInfo"]["name"]
        request = dataclasses.replace(request, name=own.name or pipeline)
    with connect(own) as api:
        if own.list:
            found = schedules.list_schedules(api, own.experiment)
            rows = [(s.name, s.cron, "on" if s.enabled else "off", s.schedule_id) for s in found]
            print_table(("Schedule", "Cron, with seconds", "", "ID"), rows)
        elif own.remove:
            schedules.remove_schedule(api, own.experiment, own.remove)
            print(f"Removed: {own.remove}")
        else:
            created = schedules.add_schedule(api, request, own.cron)
            print(f"Schedule: {created.name}, {created.cron} (with seconds), {created.schedule_id}")
    return 0


def runs(arguments: list[str]) -> int:
    """List the latest runs of an experiment."""
    parser = Parser(prog="kfp_runner.py runs", description=runs.__doc__)
    parser.add_argument("--number", type=int, default=20, help="How many at most. Default: 20.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    add_connection(parser)
    own = parser.parse_args(arguments)

    from pipeline_def.runs.table import print_json, print_table

    if not 1 <= own.number <= 200:
        raise ConfigurationError(f"--number is {own.number}: it must be from 1 to 200.")
    with connect(own) as api:
        found = client.list_runs(api, own.experiment, own.number)
    if own.json:
        print_json([dataclasses.asdict(one) for one in found])
    else:
        print_table(("Run", "Name", "State", "Started", "Took"), map(_row, found))
    return 0


def _row(run: client.ListedRun) -> Sequence[str]:
    if not run.created:
        return run.run_id, run.name, describe(run.state), "", ""
    started = datetime.fromisoformat(run.created)
    ended = datetime.fromisoformat(run.finished) if run.finished else datetime.now(UTC)
    took = format_duration(max(0.0, (ended - started).total_seconds()))
    began = f"{started.astimezone():%Y-%m-%d %H:%M}"
    return run.run_id, run.name, describe(run.state), began, took


def logs(arguments: list[str]) -> int:
    """Print the log of a task."""
    parser = Parser(prog="kfp_runner.py logs", description=logs.__doc__)
    parser.add_argument("task", help="Name of the task, such as Trainer.")
    parser.add_argument("--run", help="ID, its beginning, or name. Default: the newest run.")
    add_connection(parser)
    own = parser.parse_args(arguments)
    with connect(own) as api:
        found = client.find_run(api, own.experiment, own.run)
        text = client.read_task_log(api, found.run_id, own.task)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0


def stop(arguments: list[str]) -> int:
    """Stop a run."""
    parser = Parser(prog="kfp_runner.py stop", description=stop.__doc__)
    parser.add_argument("run", help="ID of the run, its beginning, or its name.")
    add_connection(parser)
    own = parser.parse_args(arguments)
    with connect(own) as api:
        found = client.find_run(api, own.experiment, own.run)
        if found.state in RUN_ENDS:
            print(f"{found.run_id} has already ended: {describe(found.state)}")
            return 0
        client.stop_run(api, found.run_id)
    print(f"Stopping: {found.run_id}")
    return 0
