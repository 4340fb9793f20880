"""The command line and the YAML file, both generated from the configuration's classes."""

from __future__ import annotations

import dataclasses
import os
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import jsonargparse

from components.contract.errors import ConfigurationError, UserError
from components.contract.printable import make_printable
from pipeline_def.config.config import Config
from pipeline_def.config.help import answer
from pipeline_def.config.mistakes import check_arguments, check_file, check_values, explain

# Characters of a sentence.
_LONGEST = 500


class Parser(jsonargparse.ArgumentParser):
    """Says what is wrong in one sentence, where argparse prints the usage of all options first."""

    screen = ""
    """What `--help` prints first."""
    hidden: frozenset[str] = frozenset()
    """Options of the configuration that the command does not have."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise `ConfigurationError`."""
        lines = (line.strip(" -") for line in message.strip().splitlines())
        raise ConfigurationError(explain(f"{' '.join(filter(None, lines)).rstrip('.')}."))


def make_parser(
    prog: str,
    screen: str,
    *,
    hidden: Collection[str] = (),
    own: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Parser:
    """Build a parser of every field of the configuration, and of `--config FILE`, in YAML.

    Later options override earlier ones, so a file can be adjusted by the options after it.

    Args:
        prog: name of the command.
        screen: what `--help` prints first.
        hidden: options that the command does not have.
        own: options that the command has beside them → arguments of argparse's `add_argument`.
    """
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = Parser(prog=prog, allow_abbrev=False, add_help=False)
    parser.screen = screen
    parser.hidden = frozenset(hidden)
    parser.add_argument("--config", action="config", help="YAML file with any of the options.")
    parser.add_class_arguments(Config, skip={"given"})
    for name, arguments in own.items():
        parser.add_argument(name, **arguments)
    return parser


def parse(parser: Parser, argv: Sequence[str] | None = None) -> tuple[Config, dict[str, Any]]:
    """Return the configuration, and the values of the options that the parser has beside it.

    Raises:
        ConfigurationError: an option or a field is unknown, or its value is not allowed.
        SystemExit: after --help or --print_config.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if answer(arguments, parser.screen, prog=parser.prog, hidden=parser.hidden):
        raise SystemExit(0)
    known = {name.removeprefix("--") for name in parser._option_string_actions} - parser.hidden
    check_arguments(parser.prog, arguments, known)
    check_values(arguments)
    arguments = _without_empty_files(arguments)
    try:
        values: Any = parser.parse_args(arguments)
        given = sorted(parser.parse_args(arguments, defaults=False).keys())
        options = parser.instantiate(values).as_dict()
    except UserError:
        raise
    except (
        Exception
    ) as error:  # Of what jsonargparse makes of odd values; ours are of classes above.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(textwrap.shorten(explain(reason), _LONGEST)) from error
    names = {field.name for field in dataclasses.fields(Config)} - {"given"}
    fields = {name: options.pop(name) for name in names}
    return Config(**fields, given=given), options


def _without_empty_files(arguments: Sequence[str]) -> list[str]:
    """Check each file of `--config`, and leave out those that say nothing."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, path = argument.partition("=")
        if name != "--config":
            kept.append(argument)
        elif not (path := path if equals else next(rest, "")):
            raise ConfigurationError("--config needs a value: a YAML file.")
        elif check_file(path):
            kept += [name, path]
    return kept


def exit_status(command: Callable[[], int], *, program: str, stopped: str) -> int:
    """Run a command of a runner, and print the sentence for a user's mistake.

    Args:
        command: returns its own exit status: 0, or 1 for a failed run.
        program: begins the sentence.
        stopped: what to say after Ctrl-C.

    Returns:
        The status to exit with: that of the command or of the error's class, 130 after Ctrl-C, 141
        when nobody reads the output any more, as after `| head`.
    """
    try:
        return command()
    except UserError as error:
        print(make_printable(f"{program}: error: {error}"), file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # What is left in the buffer is written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"{program}: {stopped}", file=sys.stderr)
        return 130
