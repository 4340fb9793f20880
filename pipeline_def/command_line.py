"""The command line and the YAML file, both generated from the configuration's classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import jsonargparse

from components.errors import UserError
from pipeline_def.config import Config


class _Parser(jsonargparse.ArgumentParser):
    """Says what is wrong in one sentence, where argparse prints the usage of all options first."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise UserError(f"{_first_reason(message)} See {self.prog} --help.")


def _first_reason(message: str) -> str:
    lines = [line.strip(" -") for line in message.strip().splitlines() if line.strip()]
    text = " ".join(lines).rstrip(".")
    return f"{text}."


def parse_config(prog: str, description: str, argv: Sequence[str] | None = None) -> Config:
    """Build the configuration from `argv`, where `--config FILE` reads a YAML file.

    Later options override earlier ones, so a file can be adjusted by the options after it.

    Raises:
        UserError: an option or a field is unknown, or its value is not allowed.
        SystemExit: after --help or --print_config.
    """
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = _Parser(
        prog=prog,
        description=description,
        usage=f"{prog} [--config FILE] [--data DIR] [--output DIR] [OPTION ...]",
    )
    parser.add_argument("--config", action="config", help="YAML file with any of the options.")
    parser.add_class_arguments(Config)
    try:
        values: Any = parser.parse_args(list(sys.argv[1:] if argv is None else argv))
        sections = parser.instantiate_classes(values).as_dict()
        sections.pop("config")
        return Config(**sections)
    except ValueError as error:
        raise UserError(str(error)) from error
