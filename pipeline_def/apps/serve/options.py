"""The options of `local_runner.py serve`, which are no part of a run's configuration."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Gt, Interval

from components.contract.configuration import Count, Number, Positive, Text, configuration, require
from pipeline_def.config.command_line import parse_plain
from pipeline_def.local.output.locations import find_output, locate

SCREEN = """usage: local_runner.py serve [--output DIR|URL] [--model VERSION] [--port PORT]

Answers with the pushed model: a page for pictures, at http://127.0.0.1:8501/,
the REST of TensorFlow Serving, at /v1/models/images:predict, and the Open
Inference Protocol, at /v2/models/images/infer; metrics for Prometheus at
/metrics. Takes up a newer version as soon as it is pushed, without losing a
request. Ctrl-C ends it.

  --output DIR|URL         the output folder of the runs: output; gs:// s3://
  --model VERSION          serve this version, and no newer one
  --unblessed              serve the model of the newest run, although it is not
                           blessed, as version 0; the page says so
  --name NAME              name of the model in addresses: images
  --host ADDRESS           address to listen on: 127.0.0.1, this machine only;
                           0.0.0.0 for all that can reach it
  --hosts NAME,NAME        further names under which clients reach it; with --host
                           0.0.0.0, addresses, single words and .local, .internal
                           need no naming
  --port PORT              8501; 0 for any that is free
  --timeout SECONDS        longest time from the first byte of a request to the
                           last one of its answer: 30
  --max_request_mib MIB    largest request: 32
  --max_images N           most images of a request: 64
  --max_image_mpixels N    largest image, million pixels: 40. Images of requests
                           above 1 million are handled one by one, on half of
                           the cores (at most 4), with 48 bytes a pixel
  --max_request_mpixels N  most pixels of a request's images together, million:
                           100
  --log FILE               append a line of JSON for each answer: time, id of the
                           request, version, label, probability, known
"""


@configuration()
class Listening:
    """Where a server listens, and how long a request may take."""

    output: Text = ""
    """Empty: the only one there is."""
    host: Text = "127.0.0.1"
    port: Annotated[Count, Interval(le=65_535)] = 8501
    hosts: Text | None = None
    timeout: Annotated[Number, Gt(0)] = 30.0

    @property
    def known_hosts(self) -> list[str]:
        """The names in `hosts`."""
        return [name.strip().lower() for name in (self.hosts or "").split(",") if name.strip()]

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


@configuration()
class ServerOptions(Listening):
    """Options of the server; `SCREEN` describes each."""

    model: Text | None = None
    unblessed: bool = False
    name: Text = "images"
    max_request_mib: Annotated[Number, Gt(0)] = 32.0
    max_images: Positive = 64
    max_image_mpixels: Annotated[Number, Gt(0)] = 40.0
    max_request_mpixels: Annotated[Number, Gt(0)] = 100.0
    log: Text | None = None

    def __post_init__(self) -> None:
        """Check the name, and the options against each other."""
        require(
            not (self.model and self.unblessed),
            "--model and --unblessed both choose the model: give one.",
        )
        require(
            re.fullmatch(r"[\w.-]+", self.name, re.ASCII) is not None,
            f"name is {self.name!r}: use letters, digits, dots, hyphens and underscores only.",
        )
        require(
            self.max_request_mpixels >= self.max_image_mpixels,
            f"max_request_mpixels is {self.max_request_mpixels}: it must be at least "
            f"max_image_mpixels, {self.max_image_mpixels}.",
        )

    @property
    def max_request_bytes(self) -> int:
        """Size of the largest request."""
        return int(self.max_request_mib * 2**20)


def parse_options(arguments: Sequence[str]) -> ServerOptions:
    """Read the command line.

    Raises:
        ConfigurationError: an option is unknown, or its value is not allowed.
        SystemExit: after --help.
    """
    options = parse_plain(arguments, ServerOptions, screen=SCREEN, prog="local_runner.py serve")
    output = find_output(options.output)
    log = options.log and locate(options.log, "log", ())
    return dataclasses.replace(options, output=output, log=log)
