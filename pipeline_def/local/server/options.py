"""The options of `local_runner.py serve`, which are no part of a run's configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.configuration import require
from components.contract.errors import ConfigurationError
from pipeline_def.config.command_line import Parser
from pipeline_def.config.mistakes import check_arguments, explain
from pipeline_def.local.output.places import OUTPUT_SCHEMES, locate

SCREEN = """usage: local_runner.py serve [--output DIR|URL] [--model VERSION] [--port PORT]

Answers with the pushed model: a page for pictures, at http://127.0.0.1:8501/,
and the REST of TensorFlow Serving, at /v1/models/images:predict. Takes up a
newer version as soon as it is pushed, without losing a request. Ctrl-C ends it.

  --output DIR|URL         the output folder of the runs: output; gs:// s3://
  --model VERSION          serve this version, and no newer one
  --name NAME              name of the model in addresses: images
  --host ADDRESS           address to listen on: 127.0.0.1, this machine only;
                           0.0.0.0 for all that can reach it
  --port PORT              8501; 0 for any that is free
  --timeout SECONDS        longest time from the first byte of a request to the
                           last one of its answer: 30
  --max_request_mib MIB    largest request: 32
  --max_images N           most images of a request: 64
  --max_image_mpixels N    largest image, million pixels: 40. One takes up to
                           16 bytes a pixel while it is decoded
  --max_request_mpixels N  most pixels of a request's images together, million:
                           100. The server holds at most twice as many at once
  --max_batch N            most images that the model is asked for at once: 64
  --max_delay_ms MS        longest time that an image waits for others, and only
                           while others are on their way: 2
"""


@dataclass(frozen=True)
class ServerOptions:
    """What a server is told; `SCREEN` says what each option means."""

    output: str = "output"
    model: str | None = None
    name: str = "images"
    host: str = "127.0.0.1"
    port: int = 8501
    timeout: float = 30.0
    max_request_mib: float = 32.0
    max_images: int = 64
    max_image_mpixels: float = 40.0
    max_request_mpixels: float = 100.0
    max_batch: int = 64
    max_delay_ms: float = 2.0

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        require(0 <= self.port <= 65_535, f"--port is {self.port}: it must be from 0 to 65535.")
        require(
            re.fullmatch(r"[\w.-]+", self.name, re.ASCII) is not None,
            f"--name is {self.name!r}: letters, digits, dots, hyphens and underscores are allowed.",
        )
        for name in ("timeout", "max_request_mib", "max_image_mpixels"):
            value = getattr(self, name)
            require(value > 0, f"--{name} is {value}: it must be above 0.")
        require(
            self.max_request_mpixels >= self.max_image_mpixels,
            f"--max_request_mpixels is {self.max_request_mpixels}: it must be at least "
            f"--max_image_mpixels, {self.max_image_mpixels}.",
        )
        for name in ("max_images", "max_batch"):
            value = getattr(self, name)
            require(value >= 1, f"--{name} is {value}: it must be at least 1.")
        require(
            self.max_delay_ms >= 0,
            f"--max_delay_ms is {self.max_delay_ms}: it must not be below 0.",
        )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def max_request_pixels(self) -> float:
        """Total pixels of the images of the largest request."""
        return self.max_request_mpixels * 1e6

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
    if {"-h", "--help", "--help-all"} & set(arguments):
        print(SCREEN.strip())
        raise SystemExit(0)
    parser = Parser(prog="local_runner.py serve", allow_abbrev=False, add_help=False)
    parser.add_class_arguments(ServerOptions)
    known = {name.removeprefix("--") for name in parser._option_string_actions}
    check_arguments(parser.prog, arguments, known)
    try:
        values: dict[str, Any] = parser.parse_args(list(arguments)).as_dict()
        options = ServerOptions(**values)
    except ValueError as error:
        raise ConfigurationError(explain(str(error))) from error
    output = locate(options.output, "output", OUTPUT_SCHEMES)
    return ServerOptions(**{**values, "output": output})
