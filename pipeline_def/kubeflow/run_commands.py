"""The commands of `kfp_runner.py` for runs on a cluster, and the options that commands share."""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from components.contract.errors import ConfigurationError
from components.contract.printable import format_duration
from pipeline_def.config.config import Config
from pipeline_def.kubeflow.client import runs as client
from pipeline_def.kubeflow.client import schedules
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.follow import RUN_ENDS, describe, follow
from pipeline_def.kubeflow.client.runs import Parameter, RunRequest
from pipeline_def.kubeflow.specification import Specification, check_documents, read_documents
from pipeline_def.kubeflow.step_interface import RUN_PARAMETERS

_STATUS = """Exit status: 0 succeeded, or started without --wait; 1 the run failed or was stopped; 2
a mistake, or the cluster cannot be reached; 130 Ctrl-C, after which the run continues."""
_INTERRUPTED = 130
_MOST_LISTED = 20
_READERS: dict[str, Callable[[str], Parameter]] = {"NUMBER_INTEGER": int, "NUMBER_DOUBLE": float}


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one sentence, without the usage of all options."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigurationError`."""
        text = f"{message[:1].upper()}{message[1:].rstrip('.')}"
        raise ConfigurationError(f"{text}. See {self.prog} --help.")


def _make_parser(command: Callable[[list[str]], int]) -> Parser:
    """Return the parser of a command, without options."""
    return Parser(prog=f"kfp_runner.py {command.__name__}", description=command.__doc__)


def _parse(parser: Parser, arguments: list[str]) -> tuple[argparse.Namespace, Api]:
    """Add the options for the API of Kubeflow Pipelines; return all options, and the API."""
    add = parser.add_argument_group("Kubeflow Pipelines").add_argument
    add("--endpoint", required=True, help="URL of the API, such as http://localhost:8080.")
    add("--namespace", help="Namespace of the user, on a cluster with several.")
    add("--experiment", default="images", help="Created if missing. Default: images.")
    add("--token-file", help="File with a bearer token. Default: the variable KFP_TOKEN, or none.")
    add("--ca-cert", help="PEM file with the certificate of the server's authority.")
    options = parser.parse_args(arguments)
    names = ("endpoint", "namespace", "token_file", "ca_cert")
    return options, Api(**{name: getattr(options, name) for name in names})


def _add_request(parser: Parser) -> None:
    """Add the options for what a run consists of."""
    add = parser.add_argument
    text = "File from `compile`. Default: pipeline.yaml."
    add("spec", nargs="?", default="pipeline.yaml", metavar="FILE", help=text)
    add(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Parameter of the run, such as training_epochs=5. May be repeated.",
    )
    add("--service-account", help="Account that runs the steps.")


def _make_request(options: argparse.Namespace, name: str | None, suffix: str = "") -> RunRequest:
    """Return the run, or the runs of a schedule, that the options of `_add_request` describe.

    Without a name it has that of the pipeline and the suffix. Raises `UserError` for wrong
    parameters and files.
    """
    documents = read_documents(options.spec)
    check_documents(documents, "oss")
    specification = Specification(documents[0])
    return RunRequest(
        documents=documents,
        name=name or f"{specification.spec['pipelineInfo']['name']}{suffix}",
        parameters=_parse_parameters(options.parameter, specification),
        service_account=options.service_account,
        experiment=options.experiment,
    )


def _parse_parameters(texts: list[str], specification: Specification) -> dict[str, Parameter]:
    """Read `name=value` pairs as the types in the specification."""
    definitions = specification.run_parameters
    parameters = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in definitions:
            raise ConfigurationError(
                f"--parameter {text}: write NAME=VALUE; NAME is one of "
                f"{', '.join(sorted(definitions))}."
            )
        kind = definitions[name].get("parameterType", "STRING")
        try:
            parameters[name] = _READERS.get(kind, str)(value)
        except ValueError:
            raise ConfigurationError(f"--parameter {text}: the value must be a {kind}.") from None
    # Before an hour of ingest: the values are checked as those of options are.
    for parameter in RUN_PARAMETERS:
        given = parameters.get(parameter.name, parameter.unset)
        if given != parameter.unset and len(parameter.place) > 1:
            section = getattr(Config(), parameter.section)
            dataclasses.replace(section, **{parameter.place[-1]: given})
    return parameters


def run(arguments: list[str]) -> int:
    """Upload a specification as a new version of its pipeline and start a run of it."""
    parser = _make_parser(run)
    parser.epilog = _STATUS
    _add_request(parser)
    add = parser.add_argument
    add("--run-name", help="Name of the run. Default: pipeline and time.")
    add("--wait", action="store_true", help="Follow the run; the exit status says how it ended.")
    options, api = _parse(parser, arguments)
    request = _make_request(options, options.run_name, time.strftime("-%Y%m%d-%H%M%S"))
    run_id = client.start_run(api, request)
    url = f"{api.address}/#/runs/details/{run_id}"
    print(f"Run: {run_id}\n{url}", flush=True)
    if not options.wait:
        return 0
    tasks = Specification(*request.documents).tasks
    state = follow(lambda: client.read_run(api, run_id, tasks), url)
    if state not in RUN_ENDS:
        return _INTERRUPTED
    return 0 if state in ("SUCCEEDED", "SKIPPED") else 1


def schedule(arguments: list[str]) -> int:
    """Run a specification at the times of a cron expression, on the newest data."""
    parser = _make_parser(schedule)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--cron",
        help='Minute, hour, day, month and day of the week, in the cluster\'s time: "0 3 * * *".',
    )
    what.add_argument("--list", action="store_true", help="List the schedules.")
    what.add_argument("--remove", metavar="NAME", help="Remove a schedule.")
    parser.add_argument("--name", help="Name of the schedule. Default: that of the pipeline.")
    _add_request(parser)
    options, api = _parse(parser, arguments)

    from pipeline_def.runs.table import print_table

    if options.list:
        listed = schedules.list_schedules(api, options.experiment)
        rows = map(schedules.describe_schedule, listed)
        print_table(("Schedule", "Cron, with seconds", "", "ID"), rows)
    elif options.remove:
        schedules.remove_schedule(api, options.experiment, options.remove)
        print(f"Removed: {options.remove}")
    else:
        cron = schedules.read_cron(options.cron)
        created = schedules.add_schedule(api, _make_request(options, options.name), cron)
        name, cron, _, schedule_id = schedules.describe_schedule(created)
        print(f"Schedule: {name}, {cron} (with seconds), {schedule_id}")
    return 0


def runs(arguments: list[str]) -> int:
    """List the latest 20 runs of an experiment."""
    parser = _make_parser(runs)
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options, api = _parse(parser, arguments)

    from pipeline_def.runs.table import print_json, print_table

    listed = client.list_runs(api, options.experiment, _MOST_LISTED)
    if options.json:
        print_json(listed)
    else:
        print_table(("Run", "Name", "State", "Started", "Took"), map(_row, listed))
    return 0


def _row(run: client.Row) -> Sequence[str]:
    started, ended = datetime.fromisoformat(run["created_at"]), datetime.now(UTC)
    if run["state"] in RUN_ENDS and run.get("finished_at"):
        ended = datetime.fromisoformat(run["finished_at"])
    took = format_duration(max(0.0, (ended - started).total_seconds()))
    name, began = run.get("display_name", ""), f"{started.astimezone():%Y-%m-%d %H:%M}"
    return run["run_id"], name, describe(run["state"]), began, took


def logs(arguments: list[str]) -> int:
    """Print the log of a task."""
    parser = _make_parser(logs)
    parser.add_argument("task", help="Name of the task, such as Trainer.")
    parser.add_argument("--run", help="ID, its beginning, or name. Default: the newest run.")
    options, api = _parse(parser, arguments)
    run = client.find_run(api, options.experiment, options.run)
    text = client.read_log(api, run, options.task)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0


def stop(arguments: list[str]) -> int:
    """Stop a run."""
    parser = _make_parser(stop)
    parser.add_argument("run", help="ID of the run, its beginning, or its name.")
    options, api = _parse(parser, arguments)
    run = client.find_run(api, options.experiment, options.run)
    run_id = run["run_id"]
    if run["state"] in RUN_ENDS:
        print(f"{run_id} has already ended: {describe(run['state'])}")
        return 0
    client.stop_run(api, run_id)
    print(f"Stopping: {run_id}")
    return 0
