"""Table of all commands; each loads its module only when it is called."""

import contextlib
import difflib
import os
from collections.abc import Callable, Sequence

from components.contract.errors import ConfigurationError
from components.contract.printable import quote


def choose_command(arguments: Sequence[str]) -> tuple[Callable[[list[str]], int], list[str]]:
    """Return the command that the first argument names, else `run`, and its arguments.

    Raises:
        ConfigurationError: the first argument looks like a misspelled command.
    """
    words = list(arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]], words[1:]
    if words and not words[0].startswith("-") and not os.path.exists(words[0]):
        similar = difflib.get_close_matches(words[0], COMMANDS, n=1, cutoff=0.5)
        if similar and "/" not in words[0]:
            raise ConfigurationError(
                f"Unknown command {quote(words[0])}. Did you mean '{similar[0]}'?"
            )
    return run, words


def run(arguments: list[str]) -> int:
    """Run the whole pipeline."""
    from pipeline_def.local.commands import run

    return run.run(arguments)


def inspect(arguments: list[str]) -> int:
    """Inspect a folder of images."""
    from pipeline_def.local.commands import inspect

    return inspect.inspect(arguments)


def schema(arguments: list[str]) -> int:
    """Write the inferred schema."""
    from pipeline_def.local.commands import schema

    return schema.write_inferred(arguments)


def runs(arguments: list[str]) -> int:
    """List, compare, trace, send or prune runs."""
    from pipeline_def.local.commands import runs

    return runs.manage_runs(arguments)


def predict(arguments: list[str]) -> int:
    """Predict files with a pushed model."""
    from pipeline_def.local.commands import predict

    return predict.predict_files(arguments)


def weights(arguments: list[str]) -> int:
    """Fetch, list or install ImageNet's weights."""
    from pipeline_def.local.commands import models

    return models.manage_weights(arguments)


def rollback(arguments: list[str]) -> int:
    """Make an earlier pushed version the one in use."""
    from pipeline_def.local.commands import models

    return models.roll_back(arguments)


def serve(arguments: list[str]) -> int:
    """Serve the pushed model until interrupted."""
    from pipeline_def.local.server import options

    parsed = options.parse_options(arguments)
    from pipeline_def.local.server import command

    with contextlib.suppress(KeyboardInterrupt):
        command.serve(parsed)
    return 0


def watch(arguments: list[str]) -> int:
    """Compare served images with those of training; return 1 if they differ."""
    from pipeline_def.local import watch_options

    options = watch_options.parse_options(arguments)
    from pipeline_def.local import watch_command

    return watch_command.watch(options)


def review(arguments: list[str]) -> int:
    """Let a person decide about a run's suspects, until interrupted."""
    from pipeline_def.local.review import options

    parsed = options.parse_options(arguments)
    if parsed.apply_to is not None:
        from pipeline_def.local.review import corrected_copy

        corrected_copy.apply_to(parsed.apply_to, parsed)
        return 0
    from pipeline_def.local.review import command

    with contextlib.suppress(KeyboardInterrupt):
        command.review(parsed)
    return 0


def export_data(arguments: list[str]) -> int:
    """Write the images that a run has ingested in a format for other programs."""
    from pipeline_def.local.export import options

    parsed = options.parse_options(arguments)
    from pipeline_def.local.export import command

    command.export(parsed)
    return 0


COMMANDS = {
    "run": run,
    "inspect": inspect,
    "predict": predict,
    "runs": runs,
    "schema": schema,
    "serve": serve,
    "watch": watch,
    "rollback": rollback,
    "weights": weights,
    "review": review,
    "export-data": export_data,
}
"""The first argument → its function; without a command, `run`."""
