"""What `kfp_runner.py run` does with its options: checks them, and asks the right client."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.check.spec_check import check_documents, read_documents
from pipeline_def.kubeflow.client import open_source_client, vertex_client
from pipeline_def.kubeflow.client.connection import Connection
from pipeline_def.kubeflow.client.run import Parameter, RunRequest, RunView, StartedRun
from pipeline_def.kubeflow.specification import Specification

SUCCEEDED = ("SUCCEEDED", "SKIPPED")

_REQUIRED = {"oss": ("endpoint",), "vertex": ("project", "region")}
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
    for name in _REQUIRED[options.target]:
        if not getattr(options, name):
            raise ConfigurationError(f"--{name} is missing: --target {options.target} needs it.")
    documents = read_documents(options.spec)
    check_documents(documents, options.target)
    spec = documents[0]
    now = time.strftime("%Y%m%d-%H%M%S")
    request = RunRequest(
        path=options.spec,
        documents=documents,
        name=options.run_name or f"{spec['pipelineInfo']['name']}-{now}",
        parameters=parse_parameters(options.parameter, Specification(spec)),
        pipeline_root=options.pipeline_root,
        service_account=options.service_account,
        cache=False if options.no_cache else None,
    )
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


def follow(options: argparse.Namespace, run_id: str, see: Callable[[RunView], None]) -> str:
    """Print each change of a task's state until the run ends; return the run's last state.

    Args:
        options: those of `kfp_runner.py run`.
        run_id: of the run.
        see: is given the run as often as it is read.
    """
    write = functools.partial(print, flush=True)
    if options.target == "vertex":
        location = _place(vertex_client.Location, options)
        return vertex_client.follow_run(location, run_id, write, see=see)
    return open_source_client.follow_run(_place(Connection, options), run_id, write, see=see)


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
