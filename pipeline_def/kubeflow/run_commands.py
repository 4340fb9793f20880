"""What `kfp_runner.py` does with runs on a cluster: starts, schedules, lists and stops them."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from components.contract.errors import ConfigurationError
from components.contract.printable import format_duration
from pipeline_def.kubeflow.command_options import Parser, add_connection, add_request, add_target

if TYPE_CHECKING:
    from pipeline_def.kubeflow.client.run_control import ListedRun
    from pipeline_def.kubeflow.client.schedule import Schedule

RUN = "Uploads a specification as a new version of its pipeline and starts a run of it."
SCHEDULE = "Has a specification run at the times of a cron expression, on the newest data."
RUNS = "Lists the newest runs of an experiment."
LOGS = "Prints the log of a task."
STOP = "Stops a run."

_STATUS = """Exit status: 0 succeeded, or started without --wait; 1 the run failed or was stopped; 2
a mistake, or the cluster cannot be reached; 130 Ctrl-C, after which the run goes on."""
_INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Start a run, and follow it if asked; return 1 if it failed."""
    own = _run_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import submission
    from pipeline_def.kubeflow.client.run_follower import RUN_ENDS
    from pipeline_def.kubeflow.client.run_record import RunWriter

    writer = RunWriter(own)
    started = submission.start(own)
    writer.write_start(started)
    print(f"Run: {started.run_id}\n{started.url}", flush=True)
    if not own.wait:
        return 0
    state = submission.follow(own, started.run_id, writer.see)
    if state not in RUN_ENDS:
        return _INTERRUPTED
    return 0 if state in submission.SUCCEEDED else 1


def _run_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py run", description=RUN, epilog=_STATUS)
    add_target(parser)
    add_request(parser)
    add = parser.add_argument
    add("--run-name", help="Name of the run; else pipeline and time.")
    add("--output", default="output", metavar="DIR", help="Folder for the run's record: output.")
    add("--wait", action="store_true", help="Follow the run; the status tells how it ended.")
    add_connection(parser)
    vertex = parser.add_argument_group("Vertex AI")
    vertex.add_argument("--project", help="Of Google Cloud.")
    vertex.add_argument("--region", help="Such as europe-west4.")
    return parser


def schedule(arguments: list[str]) -> int:
    """Make, list or remove schedules."""
    own = _schedule_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import schedule as schedules
    from pipeline_def.kubeflow.client import submission

    if own.cron is not None:
        schedules.read_cron(own.cron)
        request = submission.make_request(own, own.name, target="oss")
        pipeline = request.documents[0]["pipelineInfo"]["name"]
        request = dataclasses.replace(request, name=own.name or pipeline)
    with submission.connect(own) as api:
        if own.list:
            _print_schedules(schedules.list_schedules(api, own.experiment))
        elif own.remove:
            schedules.remove_schedule(api, own.experiment, own.remove)
            print(f"Removed: {own.remove}")
        else:
            made = schedules.add_schedule(
                api, request, own.cron, experiment=own.experiment, version=own.pipeline_version
            )
            print(f"Schedule: {made.name}, {made.cron} (with seconds), {made.schedule_id}")
    return 0


def _schedule_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py schedule", description=SCHEDULE)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--cron",
        help='Minute, hour, day, month and day of the week, in the cluster\'s time: "0 3 * * *".',
    )
    what.add_argument("--list", action="store_true", help="List the schedules.")
    what.add_argument("--remove", metavar="NAME", help="Remove a schedule; its runs go on.")
    parser.add_argument("--name", help="Name of the schedule; else that of the pipeline.")
    add_request(parser)
    add_connection(parser)
    return parser


def runs(arguments: list[str]) -> int:
    """List runs."""
    own = _runs_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import run_control, submission
    from pipeline_def.runs.table import print_json, print_table

    if not 1 <= own.number <= 200:
        raise ConfigurationError(f"--number is {own.number}: it must be from 1 to 200.")
    with submission.connect(own) as api:
        found = run_control.list_runs(api, own.experiment, own.number)
    if own.json:
        print_json([dataclasses.asdict(one) for one in found])
    else:
        print_table(("Run", "Name", "State", "Started", "Took"), map(_row, found))
    return 0


def _runs_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py runs", description=RUNS)
    parser.add_argument("--number", type=int, default=20, help="How many at most: 20.")
    parser.add_argument("--json", action="store_true", help="Print them as JSON.")
    add_connection(parser)
    return parser


def logs(arguments: list[str]) -> int:
    """Print the log of a task."""
    own = _logs_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import run_control, submission

    with submission.connect(own) as api:
        meant = run_control.find_run(api, own.experiment, own.run)
        text = run_control.read_task_log(api, meant.run_id, own.task)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0


def _logs_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py logs", description=LOGS)
    parser.add_argument("task", help="Name of the task, such as Trainer.")
    parser.add_argument("--run", help="Identifier, its beginning, or name; else the newest run.")
    add_connection(parser)
    return parser


def stop(arguments: list[str]) -> int:
    """Stop a run."""
    own = _stop_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import run_control, submission
    from pipeline_def.kubeflow.client.run_follower import RUN_ENDS

    with submission.connect(own) as api:
        meant = run_control.find_run(api, own.experiment, own.run)
        if meant.state in RUN_ENDS:
            print(f"{meant.run_id} has ended already: {meant.state}")
            return 0
        run_control.stop_run(api, meant)
    print(f"Stopping: {meant.run_id}")
    return 0


def _stop_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py stop", description=STOP)
    parser.add_argument("run", help="Identifier of the run, the beginning of it, or its name.")
    add_connection(parser)
    return parser


def _row(run: ListedRun) -> Sequence[str]:
    begun = datetime.fromisoformat(run.created) if run.created else None
    if begun is None:
        return (run.run_id, run.name, run.state, "", "")
    ended = datetime.fromisoformat(run.finished) if run.finished else datetime.now(UTC)
    took = format_duration(max(0.0, (ended - begun).total_seconds()))
    return (run.run_id, run.name, run.state, f"{begun.astimezone():%Y-%m-%d %H:%M}", took)


def _print_schedules(found: list[Schedule]) -> None:
    from pipeline_def.runs.table import print_table

    rows = ((one.name, one.cron, "on" if one.enabled else "off", one.schedule_id) for one in found)
    print_table(("Schedule", "Cron, with seconds", "", "Identifier"), rows)


PARSERS = (_run_parser, _schedule_parser, _runs_parser, _logs_parser, _stop_parser)
"""Make the parsers of all commands here."""
