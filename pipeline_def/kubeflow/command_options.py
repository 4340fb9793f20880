"""Options that several commands of `kfp_runner.py` have."""

from __future__ import annotations

import argparse
from typing import NoReturn

from components.contract.errors import ConfigurationError


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage of all options."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigurationError`."""
        text = f"{message[:1].upper()}{message[1:].rstrip('.')}"
        raise ConfigurationError(f"{text}. See {self.prog} --help.")


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the option that says which Kubeflow."""
    parser.add_argument(
        "--target",
        choices=("oss", "vertex"),
        default="oss",
        help="Open-source Kubeflow Pipelines v2 (oss, the default), or Vertex AI.",
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add where the API of open-source Kubeflow Pipelines is, who asks, and the experiment."""
    oss = parser.add_argument_group("open-source Kubeflow Pipelines")
    oss.add_argument("--endpoint", help="URL of the pipelines' API: http://localhost:8080.")
    oss.add_argument("--namespace", help="Of the user, where there are several.")
    oss.add_argument("--experiment", default="images", help="Made when missing: images.")
    oss.add_argument(
        "--token-file", help="File with a bearer token; else the variable KFP_TOKEN, or none."
    )
    oss.add_argument("--ca-cert", help="File with the certificate of the server's authority.")
    oss.add_argument("--timeout", type=float, default=30.0, help="Of a request, seconds: 30.")


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add what a run is made of."""
    add = parser.add_argument
    add("--spec", default="pipeline.yaml", help="What `compile` wrote: pipeline.yaml.")
    add(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="A parameter of the run, such as training_epochs=5; as often as needed.",
    )
    add("--pipeline-root", help="URL below which a run keeps what its steps write.")
    add("--pipeline-version", help="Name of the version; else time and digest.")
    add("--service-account", help="Account that the steps run as.")
    add("--no-cache", action="store_true", help="Run every step, whatever was done before.")
