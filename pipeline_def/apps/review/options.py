"""The options of `local_runner.py review`, which are no part of a run's configuration."""

import dataclasses
import getpass
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Interval

from components.contract.configuration import Count, Text, configuration
from pipeline_def.apps.serve.options import Listening
from pipeline_def.config.command_line import parse_plain
from pipeline_def.layout import Layout
from pipeline_def.local.output.locations import find_output, locate
from pipeline_def.runs.history import SelectedRun

SCREEN = """usage: local_runner.py review [--output DIR|URL] [--corrections FILE]
       local_runner.py review --apply-to COPY [--output DIR|URL]

Opens a page, at http://127.0.0.1:8502/, with the images that a run suspects of a
wrong label or of poor quality, the most probable first. Keep, relabel or remove
each with a key. Every decision is in the corrections file before the next image
appears; the next run in the output folder applies the decisions. No image is
ever changed. Ctrl-C ends it; start it again to continue.

  --output DIR|URL    the output folder of the runs: output
  --corrections FILE  CSV file for the decisions, continued if it exists:
                      that of the run, or corrections.csv in the output folder
  --who NAME          name to write beside the decisions: your user name
  --apply-to COPY     instead of the page, write a copy of the images to a new
                      folder, with the labels as corrected
  --host ADDRESS      address to listen on: 127.0.0.1, this machine only
  --hosts NAME,NAME   further names under which browsers reach it
  --port PORT         8502; 0 for any that is free
"""


@configuration()
class ReviewOptions(Listening):
    """Options of the review; `SCREEN` describes each."""

    port: Annotated[Count, Interval(le=65_535)] = 8502
    corrections: Text | None = None
    who: Text | None = None
    apply_to: Text | None = None

    @property
    def reviewer(self) -> str:
        """Name to write beside the decisions."""
        if self.who is not None:
            return self.who
        try:
            return getpass.getuser()
        except (KeyError, OSError):  # In a container the user may have no name.
            return ""

    def find_corrections(self, run: SelectedRun) -> str:
        """Return the path or URL of the corrections file: by default the one that a run used."""
        used = run.record.configuration.get("ingest", {}).get("corrections")
        # That of an output at a URL has the path of the working copy.
        if self.corrections or not used or used == Layout(run.output).corrections:
            return self.corrections or Layout(self.output).corrections
        return str(used)


def parse_options(arguments: Sequence[str]) -> ReviewOptions:
    """Read the command line.

    Raises:
        ConfigurationError: an option is unknown, or its value is not allowed.
        SystemExit: after --help.
    """
    options = parse_plain(arguments, ReviewOptions, screen=SCREEN, prog="local_runner.py review")
    output = find_output(options.output)
    corrections = options.corrections and locate(options.corrections, "corrections", None)
    copy = options.apply_to and locate(options.apply_to, "apply-to", ())
    return dataclasses.replace(options, output=output, corrections=corrections, apply_to=copy)
