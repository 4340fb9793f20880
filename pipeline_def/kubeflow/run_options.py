"""Options that several commands of `kfp_runner.py` share, and what they stand for."""

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import NoReturn

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.client.api import Api, Connection
from pipeline_def.kubeflow.client.run import Parameter, RunRequest
from pipeline_def.kubeflow.spec_check import check_documents, read_documents
from pipeline_def.kubeflow.specification import Specification, Target

_READERS: dict[str, Callable[[str], Parameter]] = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": lambda text: {"true": True, "false": False}[text.lower()],
}


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one sentence, without the usage of all options."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigurationError`."""
        text = f"{message[:1].upper()}{message[1:].rstrip('.')}"
        raise ConfigurationError(f"{text}. See {self.prog} --help.")


def add_target(parser: argparse.ArgumentParser, *, default: Target | None = "oss") -> None:
    """Add the option that chooses a kind of Kubeflow."""
    otherwise = f"default: {default or 'what the file is for'}"
    parser.add_argument(
        "--target",
        choices=("oss", "vertex"),
        default=default,
        help=f"oss: open-source Kubeflow Pipelines v2; vertex: Vertex AI; {otherwise}.",
    )


def add_connection(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the options for the API of open-source Kubeflow Pipelines."""
    group = parser.add_argument_group("open-source Kubeflow Pipelines")
    add = group.add_argument
    add("--endpoint", required=required, help="URL of the API, such as http://localhost:8080.")
    add("--namespace", help="Namespace of the user, on a cluster with several.")
    add("--experiment", default="images", help="Created if missing. Default: images.")
    add("--token-file", help="File with a bearer token. Default: the variable KFP_TOKEN, or none.")
    add("--ca-cert", help="PEM file with the certificate of the server's authority.")
    add("--timeout", type=float, default=30.0, help="Seconds for one request. Default: 30.")


def connect(options: argparse.Namespace) -> Api:
    """Return the API that the options of `add_connection` name."""
    names = [item.name for item in dataclasses.fields(Connection)]
    return Api(Connection(**{name: getattr(options, name) for name in names}))


def add_specification(parser: argparse.ArgumentParser) -> None:
    """Add the specification."""
    text = "File from `compile`. Default: pipeline.yaml."
    parser.add_argument("spec", nargs="?", default="pipeline.yaml", metavar="FILE", help=text)


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the options for what a run consists of."""
    add = parser.add_argument
    add_specification(parser)
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


def make_request(options: argparse.Namespace, name: str | None, *, target: Target) -> RunRequest:
    """Return the run, or the runs of a schedule, that the options of `add_request` describe.

    Without a name, it is named by pipeline and time. Raises `UserError` for wrong parameters and
    files.
    """
    documents = read_documents(options.spec)
    check_documents(documents, target)
    specification = Specification(documents[0])
    pipeline = specification.spec["pipelineInfo"]["name"]
    return RunRequest(
        path=options.spec,
        documents=documents,
        name=name or f"{pipeline}-{time.strftime('%Y%m%d-%H%M%S')}",
        parameters=_parse_parameters(options.parameter, specification),
        pipeline_root=options.pipeline_root,
        service_account=options.service_account,
        no_cache=options.no_cache,
        experiment=options.experiment,
        version=options.pipeline_version,
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
        except (ValueError, KeyError):
            raise ConfigurationError(f"--parameter {text}: the value must be a {kind}.") from None
    return parameters
