"""Table of all commands; each loads its module only when it is called."""

import importlib
import os
from collections.abc import Callable, Sequence

from components.contract.error_messages import did_you_mean
from components.contract.errors import ConfigurationError
from components.contract.printable import quote

Command = Callable[[list[str]], int]
"""From the arguments after its name to the exit status."""


def choose_command(arguments: Sequence[str]) -> tuple[Command, list[str]]:
    """Return the command that the first argument names, else `run`, and its arguments.

    Raises:
        ConfigurationError: the first argument looks like a misspelled command.
    """
    words = list(arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
        if words[0] not in (*COMMANDS, "--help"):
            raise ConfigurationError(
                f"Unknown command {quote(words[0])}: use {', '.join(COMMANDS)}."
            )
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]], words[1:]
    if words and not words[0].startswith("-") and not os.path.exists(words[0]):
        hint = did_you_mean(words[0], COMMANDS)
        if hint and "/" not in words[0]:
            raise ConfigurationError(f"Unknown command {quote(words[0])}.{hint}")
    return COMMANDS["run"], words


def _load(module: str, function: str) -> Command:
    """Return a command, whose module is imported when it is called."""

    def command(arguments: list[str]) -> int:
        call: Command = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        return call(arguments)

    return command


COMMANDS = {
    "run": _load("local.commands.run", "run"),
    "inspect": _load("local.commands.inspect", "inspect"),
    "predict": _load("local.commands.predict", "predict_files"),
    "runs": _load("local.commands.runs", "manage_runs"),
    "serve": _load("apps.serve.command", "serve"),
    "rollback": _load("local.commands.rollback", "roll_back"),
    "review": _load("apps.review.command", "review"),
}
"""The first argument → its function; without a command, `run`."""
