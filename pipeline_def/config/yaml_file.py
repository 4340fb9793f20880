"""Reads YAML from any author: whatever it contains, it is rejected quickly or returned as data."""

from __future__ import annotations

import os
import re
from typing import Any

import yaml

from components.contract.errors import ConfigurationError

MOST_BYTES = 2**20
MOST_VALUES = 10_000
"""Counting what aliases repeat: ten lines can stand for billions of values."""
DEEPEST = 20
"""Levels of nesting; the deepest option has five."""


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as YAML 1.2 does: `off` and dates are text, 1e-3 is a number."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first)
    )


def read_yaml(path: str) -> Any:
    """Read a YAML file; return None if it is empty.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML, or is too large, deep or
            repetitive.
    """
    return parse_yaml(_read_text(path), path)


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML.

    Args:
        text: YAML, or anything else.
        where: its file or option, for messages.

    Raises:
        ConfigurationError: it is not YAML, or is too deep or repetitive.
    """
    try:
        _check_size(text, where)
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where} is not YAML{_describe_place(error)}.") from error
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        if isinstance(error, ConfigurationError):
            raise
        # For example a value tagged as a date that is not one.
        raise ConfigurationError(f"{where} has an invalid value: {error}.") from error


def _check_size(text: str, where: str) -> None:
    """Check how many values a YAML text stands for, before it is parsed."""
    # For the document and each open collection: its anchor, and its number of values so far.
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
                f"{where} is nested more than {DEEPEST} levels deep; no option is."
            )
        if open_ones[-1][1] > MOST_VALUES:
            raise ConfigurationError(
                f"{where} stands for more than {MOST_VALUES:,} values; no configuration does."
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
        raise ConfigurationError(f"{path} is larger than {MOST_BYTES:,} bytes.")
    return text


def _describe_place(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f" in line {mark.line + 1}" if mark else ""
    return f"{where}: {problem}" if problem else where
