"""The commands of `kfp_runner.py` for runs on a cluster: start, schedule, list, read and stop."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from components.contract.errors import ConfigurationError
from components.contract.printable import format_duration

if TYPE_CHECKING:
    from pipeline_def.kubeflow.client.runs import ListedRun

_STATUS = """Exit status: 0 succeeded, or started without --wait; 1 the run failed or was stopped; 2
a mistake, or the cluster cannot be reached; 130 Ctrl-C, after which the run continues."""
_INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one sentence, without the usage of all options."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigurationError`."""
        text = f"{message[:1].upper()}{message[1:].rstrip('.')}"
        raise ConfigurationError(f"{text}. See {self.prog} --help.")


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses a kind of Kubeflow."""
    parser.add_argument(
        "--target",
        choices=("oss", "vertex"),
        default="oss",
        help="oss: open-source Kubeflow Pipelines v2, the default; vertex: Vertex AI.",
    )


def _add_connection(parser: argparse.ArgumentParser) -> None:
    oss = parser.add_argument_group("open-source Kubeflow Pipelines")
    add = oss.add_argument
    add("--endpoint", help="URL of the Pipelines API, such as http://localhost:8080.")
    add("--namespace", help="Namespace of the user, on a cluster with several.")
    add("--experiment", default="images", help="Created if missing. Default: images.")
    add("--token-file", help="File with a bearer token. Default: the variable KFP_TOKEN, or none.")
    add("--ca-cert", help="PEM file with the certificate of the server's authority.")
    add("--timeout", type=float, default=30.0, help="Seconds for one request. Default: 30.")


def _add_request(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--spec", default="pipeline.yaml", help="File from `compile`. Default: pipeline.yaml.")
    add(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Parameter of the run, such as training_epochs=5. May be repeated.",
    )
    add("--pipeline-root", help="URL of the folder for what steps write.")
    add("--pipeline-version", help="Name of the version. Default: time and digest.")
    add("--service-account", help="Account that runs the steps.")
    add("--no-cache", action="store_true", help="Run every step, whatever is in the cache.")


def run(arguments: list[str]) -> int:
    """Upload a specification as a new version of its pipeline and start a run of it."""
    own = _run_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import submission
    from pipeline_def.kubeflow.client.run import RUN_ENDS
    from pipeline_def.kubeflow.client.run_record import RunWriter, check_output
    from pipeline_def.kubeflow.specification import Specification

    check_output(own.output)
    request = submission.make_request(own, own.run_name, target=own.target)
    started = submission.start(own, request)
    writer = RunWriter(own.output, request, started)
    print(f"Run: {started.run_id}\n{started.url}", flush=True)
    if not own.wait:
        return 0
    tasks = [name for name, _, _ in Specification(*request.documents).steps()]
    state = submission.follow(own, started.run_id, tasks, writer.see)
    if state not in RUN_ENDS:
        return _INTERRUPTED
    return 0 if state in ("SUCCEEDED", "SKIPPED") else 1


def _run_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py run", description=run.__doc__, epilog=_STATUS)
    add_target(parser)
    _add_request(parser)
    add = parser.add_argument
    add("--run-name", help="Name of the run. Default: pipeline and time.")
    add("--output", default="output", metavar="DIR", help="Folder for its record. Default: output.")
    add("--wait", action="store_true", help="Follow the run; the exit status says how it ended.")
    _add_connection(parser)
    vertex = parser.add_argument_group("Vertex AI")
    vertex.add_argument("--project", help="Google Cloud project.")
    vertex.add_argument("--region", help="Region, such as europe-west4.")
    return parser


def schedule(arguments: list[str]) -> int:
    """Run a specification at the times of a cron expression, on the newest data."""
    own = _schedule_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import schedules, submission
    from pipeline_def.runs.table import print_table

    if own.cron is not None:
        schedules.read_cron(own.cron)
        request = submission.make_request(own, own.name, target="oss")
        pipeline = request.documents[0]["pipelineInfo"]["name"]
        request = dataclasses.replace(request, name=own.name or pipeline)
    with submission.connect(own) as api:
        if own.list:
            found = schedules.list_schedules(api, own.experiment)
            rows = [(s.name, s.cron, "on" if s.enabled else "off", s.schedule_id) for s in found]
            print_table(("Schedule", "Cron, with seconds", "", "ID"), rows)
        elif own.remove:
            schedules.remove_schedule(api, own.experiment, own.remove)
            print(f"Removed: {own.remove}")
        else:
            created = schedules.add_schedule(
                api, request, own.cron, experiment=own.experiment, version=own.pipeline_version
            )
            print(f"Schedule: {created.name}, {created.cron} (with seconds), {created.schedule_id}")
    return 0


def _schedule_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py schedule", description=schedule.__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--cron",
        help='Minute, hour, day, month and day of the week, in the cluster\'s time: "0 3 * * *".',
    )
    what.add_argument("--list", action="store_true", help="List the schedules.")
    what.add_argument("--remove", metavar="NAME", help="Remove a schedule.")
    parser.add_argument("--name", help="Name of the schedule. Default: that of the pipeline.")
    _add_request(parser)
    _add_connection(parser)
    return parser


def runs(arguments: list[str]) -> int:
    """List the latest runs of an experiment."""
    own = _runs_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import submission
    from pipeline_def.kubeflow.client.runs import list_runs
    from pipeline_def.runs.table import print_json, print_table

    if not 1 <= own.number <= 200:
        raise ConfigurationError(f"--number is {own.number}: it must be from 1 to 200.")
    with submission.connect(own) as api:
        found = list_runs(api, own.experiment, own.number)
    if own.json:
        print_json([dataclasses.asdict(one) for one in found])
    else:
        print_table(("Run", "Name", "State", "Started", "Took"), map(_row, found))
    return 0


def _runs_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py runs", description=runs.__doc__)
    parser.add_argument("--number", type=int, default=20, help="How many at most. Default: 20.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    _add_connection(parser)
    return parser


def logs(arguments: list[str]) -> int:
    """Print the log of a task."""
    own = _logs_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import submission
    from pipeline_def.kubeflow.client.runs import find_run, read_task_log

    with submission.connect(own) as api:
        found = find_run(api, own.experiment, own.run)
        text = read_task_log(api, found.run_id, own.task)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0


def _logs_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py logs", description=logs.__doc__)
    parser.add_argument("task", help="Name of the task, such as Trainer.")
    parser.add_argument("--run", help="ID, its beginning, or name. Default: the newest run.")
    _add_connection(parser)
    return parser


def stop(arguments: list[str]) -> int:
    """Stop a run."""
    own = _stop_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import submission
    from pipeline_def.kubeflow.client.run import RUN_ENDS
    from pipeline_def.kubeflow.client.runs import find_run, stop_run

    with submission.connect(own) as api:
        found = find_run(api, own.experiment, own.run)
        if found.state in RUN_ENDS:
            print(f"{found.run_id} has already ended: {found.state}")
            return 0
        stop_run(api, found.run_id)
    print(f"Stopping: {found.run_id}")
    return 0


def _stop_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kfp_runner.py stop", description=stop.__doc__)
    parser.add_argument("run", help="ID of the run, its beginning, or its name.")
    _add_connection(parser)
    return parser


def _row(run: ListedRun) -> Sequence[str]:
    if not run.created:
        return (run.run_id, run.name, run.state, "", "")
    started = datetime.fromisoformat(run.created)
    ended = datetime.fromisoformat(run.finished) if run.finished else datetime.now(UTC)
    took = format_duration(max(0.0, (ended - started).total_seconds()))
    return (run.run_id, run.name, run.state, f"{started.astimezone():%Y-%m-%d %H:%M}", took)


PARSERS = (_run_parser, _schedule_parser, _runs_parser, _logs_parser, _stop_parser)
"""Create the parsers of all commands here."""
