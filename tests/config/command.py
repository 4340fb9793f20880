"""Parses a command line of a runner."""

from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config


def parsed(*argv: str) -> Config:
    return parse(argv, prog="run.py", usage="The usage.")[0]
