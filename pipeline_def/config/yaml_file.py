"""Reads YAML, which is rejected in one sentence or returned as data, and writes what it reads."""

import os
import re
from typing import Any

import yaml
from yaml.composer import ComposerError

from components.contract.configuration import to_dict
from components.contract.errors import ConfigurationError
from components.contract.printable import quote

MOST_BYTES = 2**20


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as YAML 1.2 does: `off` and dates are text, 1e-3 is a number."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Reject a key that is there twice, of which the first value would be lost."""
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            # Keys that are no scalars are rejected later.
            if (name := str(key.value)) in keys:
                raise ComposerError(None, None, f"{quote(name)} is there twice", key.start_mark)
            keys.add(name)
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes what any version of YAML would not read as text."""


# Configuration classes as their fields; `SafeDumper` itself represents plain values.
_Dumper.add_multi_representer(object, lambda dumper, value: dumper.represent_dict(to_dict(value)))

for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first)
        )


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML, None if it is empty; messages say that it is from `where`.

    Raises:
        ConfigurationError: it is not YAML, or is nested too deeply.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where} is not YAML{_describe_place(error)}.") from error
    except RecursionError as error:
        raise ConfigurationError(f"{where} is nested too deeply; no option is.") from error
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        # For example a value tagged as a date that is not one.
        raise ConfigurationError(f"{where} has an invalid value: {error}.") from error


def write_yaml(value: Any, **layout: Any) -> str:
    """Return a value as YAML that `parse_yaml` reads back; `layout` is passed to PyYAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, **layout)
    return text


def read_text(path: str) -> str:
    """Return the content of a small text file; raise `ConfigurationError` if it is none."""
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
