"""Reads YAML that anybody may have written: whatever it holds, at once or in one sentence."""

from __future__ import annotations

import os
from typing import Any

import yaml

from components.contract.errors import ConfigurationError

MOST_BYTES = 2**20
MOST_VALUES = 10_000
"""With what aliases repeat: ten lines can stand for billions of values."""
DEEPEST = 20
"""Levels of nesting; the deepest option has five."""


def read_yaml(path: str) -> Any:
    """Read a YAML file; None if it says nothing.

    Raises:
        ConfigurationError: it cannot be read, is no YAML, or is too large, deep or repetitive.
    """
    text = _read_text(path)
    try:
        check_size(text, path)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML{_describe_place(error)}.") from error
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        if isinstance(error, ConfigurationError):
            raise
        # Of values that look like a date, or are marked as one, and are none.
        raise ConfigurationError(f"{path} holds a value that is none: {error}.") from error


def check_size(text: str, where: str) -> None:
    """Check how much a YAML text stands for, before it is taken apart.

    Args:
        text: YAML, or anything else.
        where: it comes from, for messages.

    Raises:
        ConfigurationError: it is nested too deeply, or stands for too many values.
        yaml.YAMLError: it is no YAML.
    """
    # Of the collections that are open, and of the whole: their anchors and values so far.
    open_ones: list[tuple[str | None, int]] = [(None, 0)]
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((event.anchor, 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_ones.pop()
            sizes |= {anchor: size} if anchor else {}
            _add(open_ones, size)
        elif isinstance(event, yaml.AliasEvent):
            endless = any(anchor == event.anchor for anchor, _ in open_ones)
            _add(open_ones, MOST_VALUES if endless else sizes.get(str(event.anchor), 1))
        elif isinstance(event, yaml.ScalarEvent):
            sizes |= {event.anchor: 1} if event.anchor else {}
            _add(open_ones, 1)
        if len(open_ones) > DEEPEST:
            raise ConfigurationError(
                f"{where} is nested more than {DEEPEST} levels deep: no option is."
            )
        if open_ones[-1][1] > MOST_VALUES:
            raise ConfigurationError(
                f"{where} stands for more than {MOST_VALUES:,} values: no configuration does."
            )


def _add(open_ones: list[tuple[str | None, int]], size: int) -> None:
    anchor, before = open_ones[-1]
    open_ones[-1] = anchor, before + size


def _read_text(path: str) -> str:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise ConfigurationError(f"Cannot read {path}: it is not a regular file.")
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_BYTES + 1)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not a text file in UTF-8.") from error
    except OSError as error:
        raise ConfigurationError(f"Cannot read {path}: {error.strerror}.") from error
    if len(text) > MOST_BYTES:
        raise ConfigurationError(
            f"{path} is larger than {MOST_BYTES:,} bytes: no configuration is."
        )
    return text


def _describe_place(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f" in line {mark.line + 1}" if mark else ""
    return f"{where}: {problem}" if problem else where
