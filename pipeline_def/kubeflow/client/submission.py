"""Turn command-line options into a run on open-source Kubeflow Pipelines or Vertex AI."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.client import runs, vertex_client
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.connection import Connection
from pipeline_def.kubeflow.client.run import Parameter, RunRequest, RunView, StartedRun
from pipeline_def.kubeflow.client.run_follower import RunFollower
from pipeline_def.kubeflow.spec_check import check_documents, read_documents
from pipeline_def.kubeflow.specification import Specification, Target

_REQUIRED: dict[Target, tuple[str, ...]] = {"oss": ("endpoint",), "vertex": ("project", "region")}
_READERS: dict[str, Callable[[str], Parameter]] = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": lambda text: {"true": True, "false": False}[text.lower()],
}


def make_request(options: argparse.Namespace, name: str | None, *, target: Target) -> RunRequest:
    """Return the run, or the runs of a schedule, that the options describe.

    Without a name, it is named by pipeline and time. Raises `UserError` for wrong options,
    parameters or files.
    """
    _require(options, target)
    documents = read_documents(options.spec)
    check_documents(documents, target)
    spec = documents[0]
    if target == "vertex" and not (options.pipeline_root or spec.get("defaultPipelineRoot")):
        raise ConfigurationError("--pipeline-root is missing: Vertex AI needs a gs:// folder.")
    return RunRequest(
        path=options.spec,
        documents=documents,
        name=name or f"{spec['pipelineInfo']['name']}-{time.strftime('%Y%m%d-%H%M%S')}",
        parameters=_parse_parameters(options.parameter, Specification(spec).run_parameters),
        pipeline_root=options.pipeline_root,
        service_account=options.service_account,
        cache=False if options.no_cache else None,
    )


def start(options: argparse.Namespace, request: RunRequest) -> StartedRun:
    """Start a run; raise `UserError` if the cluster refuses or cannot be reached."""
    if options.target == "vertex":
        return vertex_client.start_run(
            vertex_client.Location(options.project, options.region), request
        )
    with connect(options) as api:
        return runs.start_run(
            api, request, experiment=options.experiment, version=options.pipeline_version
        )


def follow(
    options: argparse.Namespace,
    run_id: str,
    tasks: Sequence[str],
    see: Callable[[RunView], None],
) -> str:
    """Print each change of a run until it ends; return its last known state.

    `see` receives the run after every poll.
    """
    follower = RunFollower(functools.partial(print, flush=True), see)
    if options.target == "vertex":
        location = vertex_client.Location(options.project, options.region)
        return vertex_client.follow_run(location, run_id, follower)
    with connect(options) as api:
        return runs.follow_run(api, run_id, tasks, follower)


def connect(options: argparse.Namespace) -> Api:
    """Return the API of open-source Kubeflow that the options name."""
    _require(options, "oss")
    return Api(
        Connection(
            options.endpoint,
            options.namespace,
            options.token_file,
            options.ca_cert,
            options.timeout,
        )
    )


def _require(options: argparse.Namespace, target: Target) -> None:
    for name in _REQUIRED[target]:
        if not getattr(options, name):
            why = f": --target {target} needs it" if hasattr(options, "target") else ""
            raise ConfigurationError(f"--{name} is missing{why}.")


def _parse_parameters(
    texts: Sequence[str], definitions: dict[str, dict[str, Any]]
) -> dict[str, Parameter]:
    """Read `name=value` pairs as the types in the specification."""
    parameters = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in definitions:
            names = ", ".join(sorted(definitions))
            raise ConfigurationError(
                f"--parameter {text}: write NAME=VALUE; NAME is one of {names}."
            )
        kind = definitions[name].get("parameterType", "STRING")
        try:
            parameters[name] = _READERS.get(kind, str)(value)
        except (ValueError, KeyError):
            raise ConfigurationError(f"--parameter {text}: the value must be a {kind}.") from None
    return parameters
