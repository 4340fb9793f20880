"""What `kfp_runner.py run` does with its options: checks them, and asks the right client."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from rich.console import Console

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.check.spec_check import check_documents, read_documents
from pipeline_def.kubeflow.client import open_source_client, vertex_client
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.connection import Connection
from pipeline_def.kubeflow.client.live_table import LiveTable
from pipeline_def.kubeflow.client.run import Parameter, RunRequest, RunView, StartedRun
from pipeline_def.kubeflow.specification import Specification, Target

SUCCEEDED = ("SUCCEEDED", "SKIPPED")

_REQUIRED: dict[Target, tuple[str, ...]] = {"oss": ("endpoint",), "vertex": ("project", "region")}
_Place = TypeVar("_Place", Connection, vertex_client.Location)

_BOOLEANS = {"true": True, "false": False}
_READERS = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": lambda t: _BOOLEANS[t.lower()],
}


def start(options: argparse.Namespace) -> StartedRun:
    """Start a run as the options of `kfp_runner.py run` say.

    Raises:
        UserError: the options, the file or the parameters are wrong, or the cluster refuses.
    """
    request = make_request(options, options.run_name, target=options.target)
    spec = request.documents[0]
    if options.target == "vertex":
        if not (options.pipeline_root or spec.get("defaultPipelineRoot")):
            raise ConfigurationError("--pipeline-root is missing: Vertex AI needs a gs:// folder.")
        return vertex_client.start_run(_place(vertex_client.Location, options), request)
    return open_source_client.start_run(
        _place(Connection, options),
        request,
        experiment=options.experiment,
        version=options.pipeline_version,
    )


def make_request(options: argparse.Namespace, name: str | None, *, target: Target) -> RunRequest:
    """Return the run, or the runs of a schedule, that the options ask for.

    Args:
        options: of the command.
        name: of the run; None: that of the pipeline and the time.
        target: of the run.

    Raises:
        UserError: the options, the file or the parameters are wrong.
    """
    _require(options, target)
    documents = read_documents(options.spec)
    check_documents(documents, target)
    spec = documents[0]
    now = time.strftime("%Y%m%d-%H%M%S")
    return RunRequest(
        path=options.spec,
        documents=documents,
        name=name or f"{spec['pipelineInfo']['name']}-{now}",
        parameters=parse_parameters(options.parameter, Specification(spec)),
        pipeline_root=options.pipeline_root,
        service_account=options.service_account,
        cache=False if options.no_cache else None,
    )


def connect(options: argparse.Namespace) -> Api:
    """Return the API of open-source Kubeflow at the place that the options name."""
    _require(options, "oss")
    return Api(_place(Connection, options))


def _require(options: argparse.Namespace, target: Target) -> None:
    for name in _REQUIRED[target]:
        if not getattr(options, name):
            why = f": --target {target} needs it" if hasattr(options, "target") else ""
            raise ConfigurationError(f"--{name} is missing{why}.")


def follow(options: argparse.Namespace, run_id: str, see: Callable[[RunView], None]) -> str:
    """Show the tasks of a run until it ends, and return its last state.

    On a terminal they are a table that changes; elsewhere there is a line for each change.

    Args:
        options: those of `kfp_runner.py run`.
        run_id: of the run.
        see: is given the run as often as it is read.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        return _follow(options, run_id, functools.partial(print, flush=True), see=see)
    table = LiveTable(console)

    def show(view: RunView) -> None:
        table.see(view)
        see(view)

    with table.shown():
        return _follow(options, run_id, table.write, see=show, changes=False)


def _follow(
    options: argparse.Namespace, run_id: str, write: Callable[[str], None], **more: Any
) -> str:
    if options.target == "vertex":
        location = _place(vertex_client.Location, options)
        return vertex_client.follow_run(location, run_id, write, **more)
    return open_source_client.follow_run(_place(Connection, options), run_id, write, **more)


def parse_parameters(texts: list[str], specification: Specification) -> dict[str, Parameter]:
    """Return the parameters of a run, each of the type that the specification says.

    Args:
        texts: `name=value`, as on the command line.
        specification: the pipeline's.

    Raises:
        ConfigurationError: the pipeline has no such parameter, or the value is of another type.
    """
    known = specification.run_parameters
    parameters: dict[str, Parameter] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise ConfigurationError(
                f"--parameter {text}: write NAME=VALUE; the names are {', '.join(sorted(known))}."
            )
        kind = known[name].get("parameterType", "STRING")
        read: Any = _READERS.get(kind, str)
        try:
            parameters[name] = read(value)
        except (ValueError, KeyError):
            raise ConfigurationError(f"--parameter {text}: the value must be a {kind}.") from None
    return parameters


def _place(kind: type[_Place], options: argparse.Namespace) -> _Place:
    """Return where the cluster is, which is made of the options of the same names."""
    return kind(**{name: getattr(options, name) for name in kind.__dataclass_fields__})
