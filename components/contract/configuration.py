"""What all configuration classes share: their checks, and the way to an executor and back.

A stage has one frozen dataclass. It is handed over as one JSON property, and read back by the same
class; the command line, the YAML file and the record of a run are made of it as well.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar

import dacite

from components.contract.errors import ConfigurationError

_Config = TypeVar("_Config")

# Types were checked when the configuration was made; JSON may write 1.0 as 1.
_AS_WRITTEN = dacite.Config(check_types=False, strict=True)


def require(condition: bool, message: str) -> None:
    """Raise `ConfigurationError(message)` unless `condition` holds."""
    if not condition:
        raise ConfigurationError(message)


def to_dict(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, and those of dataclasses within it, as a dictionary."""
    fields: dict[str, Any] = dataclasses.asdict(config)
    return fields


def to_json(config: Any) -> str:
    """Serialize a dataclass with sorted keys, so that equal configurations give equal text."""
    return json.dumps(to_dict(config), sort_keys=True)


def from_dict(kind: type[_Config], fields: Mapping[str, Any]) -> _Config:
    """Rebuild a dataclass from what `to_dict` has returned; its own checks run again."""
    return dacite.from_dict(kind, fields, _AS_WRITTEN)


def from_json(kind: type[_Config], text: str) -> _Config:
    """Rebuild a dataclass from what `to_json` has written; its own checks run again."""
    return from_dict(kind, json.loads(text))
