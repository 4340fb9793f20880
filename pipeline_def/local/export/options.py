"""The options of `local_runner.py export-data`, which are no part of a run's configuration."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from components.contract.configuration import Text, configuration
from components.contract.errors import ConfigurationError
from pipeline_def.config.command_line import parse_plain
from pipeline_def.local.output.locations import OUTPUT_SCHEMES, find_output, locate

SCREEN = """usage: local_runner.py export-data DEST --to FORMAT [--output DIR|URL] [--run RUN]

Writes the images that a run has ingested, with its splits and with corrections
applied, to DEST, a new or empty folder on this machine. Images have the bytes
that training reads. `--data DEST` ingests the result again.

  --to folder        DEST/split/label/file; manifest.jsonl if there are further
                     columns
  --to webdataset    tar shards with KEY.jpg, KEY.cls and KEY.json
  --to parquet       Parquet files with the columns image and label, as Hugging
                     Face's load_dataset reads them
  --to tfds          TFRecord files, as tfds.builder_from_directory reads them
  --output DIR|URL   the output folder of the runs: output
  --run RUN          number or id of the run in the list of `runs`: the newest
                     that has ingested images
"""


@configuration()
class ExportOptions:
    """Options of the export; `SCREEN` describes each."""

    to: Literal["folder", "webdataset", "parquet", "tfds"] | None = None
    target: Text | None = None
    output: Text = "output"
    run: Text | None = None


def _is_target(last: Sequence[str]) -> bool:
    """Return whether the last of two arguments is not the value of an option."""
    option, word = last
    return not word.startswith("-") and ("=" in option or not option.startswith("--"))


def parse_options(arguments: Sequence[str]) -> ExportOptions:
    """Read the command line.

    Raises:
        ConfigurationError: an option is unknown or missing, or its value is not allowed.
        SystemExit: after --help.
    """
    if arguments and not arguments[0].startswith("-"):
        arguments = ["--target", *arguments]
    elif arguments[1:] and _is_target(arguments[-2:]):
        arguments = ["--target", arguments[-1], *arguments[:-1]]
    options = parse_plain(
        arguments, ExportOptions, screen=SCREEN, prog="local_runner.py export-data"
    )
    if options.target is None or options.to is None:
        raise ConfigurationError(
            "Name a folder and a format: local_runner.py export-data DEST --to folder, webdataset, "
            "parquet or tfds."
        )
    output = find_output(locate(options.output, "output", OUTPUT_SCHEMES))
    return dataclasses.replace(options, output=output, target=locate(options.target, "target", ()))
