"""The options of `local_runner.py watch`, which are no part of a run's configuration."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge

from components.contract.configuration import Positive, Text, configuration
from components.contract.errors import ConfigurationError
from pipeline_def.config.command_line import parse_plain
from pipeline_def.local.output.locations import OUTPUT_SCHEMES, find_output, locate

SCREEN = """usage: local_runner.py watch --log DIR|URL [--output DIR] [--window N]

Compares what `serve --log` has kept since the last time with the images of the
run that made the model: sizes and brightness by the thresholds of validation,
labels, probabilities and pixels by a test that calls one of 2,000 windows of
unchanged images changed. Exits with 1 if a window differs, for cron.

  --log DIR|URL        the log of the server
  --output DIR         output folder of the runs: output. watch.html there has
                       the results, watch.prom metrics for Prometheus, and
                       watch.json what was judged
  --window N           answers of a window, at least 200: 500
"""


@configuration()
class WatchOptions:
    """Options of the command; `SCREEN` describes each."""

    output: Text = "output"
    log: Text = ""
    window: Annotated[Positive, Ge(200)] = 500


def parse_options(arguments: Sequence[str]) -> WatchOptions:
    """Read the command line.

    Raises:
        ConfigurationError: an option is unknown, or its value is not allowed.
        SystemExit: after --help.
    """
    options = parse_plain(arguments, WatchOptions, screen=SCREEN, prog="local_runner.py watch")
    if not options.log:
        raise ConfigurationError("--log is not set: name the folder of `serve --log`.")
    return dataclasses.replace(
        options,
        output=find_output(locate(options.output, "output", OUTPUT_SCHEMES)),
        log=locate(options.log, "log", OUTPUT_SCHEMES),
    )
