"""What `kfp_runner.py run` does with its options: checks them, and asks the right client."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from components.contract.errors import UserError
from pipeline_def.kubeflow.check.spec_check import check_documents, read_documents
from pipeline_def.kubeflow.client import open_source_client, vertex_client
from pipeline_def.kubeflow.client.run_follower import Parameter, RunView, StartedRun

SUCCEEDED = ("SUCCEEDED", "SKIPPED")

_BOOLEANS = {"true": True, "false": False}


def start(options: argparse.Namespace) -> StartedRun:
    """Start a run as the options of `kfp_runner.py run` say.

    Raises:
        UserError: the options, the file or the parameters are wrong, or the cluster refuses.
    """
    _require(options, {"oss": ("endpoint",), "vertex": ("project", "region")}[options.target])
    documents = read_documents(options.spec)
    check_documents(documents, options.target)
    spec = documents[0]
    parameters = parse_parameters(options.parameter, spec)
    pipeline = spec["pipelineInfo"]["name"]
    name = options.run_name or f"{pipeline}-{time.strftime('%Y%m%d-%H%M%S')}"
    cache = False if options.no_cache else None
    if options.target == "vertex":
        root = options.pipeline_root or spec.get("defaultPipelineRoot")
        if not root:
            raise UserError("--pipeline-root is missing: Vertex AI needs a gs:// folder.")
        return vertex_client.start_run(
            options.spec,
            project=options.project,
            region=options.region,
            pipeline_root=root,
            parameters=parameters,
            display_name=name,
            service_account=options.service_account,
            cache=cache,
        )
    return open_source_client.start_run(
        _connection(options),
        options.spec,
        pipeline=pipeline,
        version=options.pipeline_version,
        run_name=name,
        experiment=options.experiment,
        parameters=parameters,
        pipeline_root=options.pipeline_root,
        cache=cache,
        service_account=options.service_account,
    )


def follow(options: argparse.Namespace, run_id: str, see: Callable[[RunView], None]) -> str:
    """Print each change of a task's state until the run ends; return the run's last state.

    Args:
        options: those of `kfp_runner.py run`.
        run_id: of the run.
        see: is given the run as often as it is read.
    """
    if options.target == "vertex":
        return vertex_client.follow_run(
            run_id, _print, see=see, project=options.project, region=options.region
        )
    return open_source_client.follow_run(_connection(options), run_id, _print, see=see)


def parse_parameters(texts: list[str], spec: dict[str, Any]) -> dict[str, Parameter]:
    """Return the parameters of a run, each of the type that the specification says.

    Args:
        texts: `name=value`, as on the command line.
        spec: the pipeline's.

    Raises:
        UserError: the pipeline has no such parameter, or the value is of another type.
    """
    known = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    parameters = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise UserError(
                f"--parameter {text}: write NAME=VALUE; the names are {', '.join(sorted(known))}."
            )
        parameters[name] = _typed(name, value, known[name].get("parameterType", "STRING"))
    return parameters


def _typed(name: str, value: str, kind: str) -> Parameter:
    try:
        if kind == "NUMBER_INTEGER":
            return int(value)
        if kind == "NUMBER_DOUBLE":
            return float(value)
        if kind == "BOOLEAN":
            return _BOOLEANS[value.lower()]
    except (ValueError, KeyError):
        raise UserError(f"--parameter {name}={value}: the value must be a {kind}.") from None
    return value


def _connection(options: argparse.Namespace) -> open_source_client.Connection:
    return open_source_client.Connection(
        endpoint=options.endpoint,
        namespace=options.namespace,
        token_file=options.token_file,
        ca_cert=options.ca_cert,
        timeout=options.timeout,
    )


def _require(options: argparse.Namespace, names: tuple[str, ...]) -> None:
    for name in names:
        if not getattr(options, name):
            raise UserError(f"--{name} is missing: --target {options.target} needs it.")


def _print(line: str) -> None:
    print(line, flush=True)
