"""The command line and the YAML file, both generated from the configuration's classes."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jsonargparse

from components.contract.errors import ConfigurationError, UserError
from pipeline_def.config.config import Config


class _Parser(jsonargparse.ArgumentParser):
    """Says what is wrong in one sentence, where argparse prints the usage of all options first."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise ConfigurationError(f"{_first_reason(message)} See {self.prog} --help.")


def _first_reason(message: str) -> str:
    lines = [line.strip(" -") for line in message.strip().splitlines() if line.strip()]
    text = " ".join(lines).rstrip(".")
    return f"{text}."


def make_parser(prog: str, description: str, *, output: bool = True) -> jsonargparse.ArgumentParser:
    """Build a parser of every field of the configuration, and of `--config FILE`, in YAML.

    Later options override earlier ones, so a file can be adjusted by the options after it.

    Args:
        prog: name of the command.
        description: of the help.
        output: whether the help shows `--output`, which a cluster ignores.
    """
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    own = "[--output DIR] " if output else ""
    parser = _Parser(
        prog=prog,
        allow_abbrev=False,
        description=description,
        usage=f"{prog} [--config FILE] [--data DIR] {own}[OPTION ...]",
    )
    parser.add_argument("--config", action="config", help="YAML file with any of the options.")
    parser.add_class_arguments(Config, skip={"given"})
    if not output:
        [action] = [action for action in parser._actions if action.dest == "output"]
        action.help = argparse.SUPPRESS
    return parser


def parse(
    parser: jsonargparse.ArgumentParser, argv: Sequence[str] | None = None
) -> tuple[Config, dict[str, Any]]:
    """Return the configuration, and the values of the options that the parser has beside it.

    Raises:
        ConfigurationError: an option or a field is unknown, or its value is not allowed.
        SystemExit: after --help or --print_config.
    """
    try:
        arguments = list(sys.argv[1:] if argv is None else argv)
        values: Any = parser.parse_args(arguments)
        given = sorted(parser.parse_args(arguments, defaults=False).keys())
        options = parser.instantiate(values).as_dict()
        names = {field.name for field in dataclasses.fields(Config)} - {"given"}
        fields = {name: options.pop(name) for name in names}
        return Config(**fields, given=given), options
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def exit_status(command: Callable[[], int], *, program: str, stopped: str) -> int:
    """Run a command of a runner, and print the sentence for a user's mistake.

    Args:
        command: returns its own exit status: 0, or 1 for a failed run.
        program: begins the sentence.
        stopped: what to say after Ctrl-C.

    Returns:
        The status to exit with: that of the command or of the error's class, 130 after Ctrl-C.
    """
    try:
        return command()
    except UserError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{program}: {stopped}", file=sys.stderr)
        return 130
