"""The options as data, for the help and for what is said of mistakes: names, types, reasons."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import docstring_parser

from components.contract.kinds import without_none
from pipeline_def.config.config import Config


@dataclass(frozen=True)
class Option:
    """A field of the configuration."""

    name: str
    """`section.field`, or `field` of the whole."""
    kind: Any
    """Its type."""
    default: Any
    """`dataclasses.MISSING` where one has to be given."""
    text: str
    """What it does, in which unit, and the reason for its default."""

    @property
    def section(self) -> str:
        """The section that it is in; "" for those of the whole."""
        return self.name.rpartition(".")[0]


@functools.cache
def list_options() -> Mapping[str, Option]:
    """Return all options by name, in the order of the classes."""
    return {option.name: option for option in _walk(Config, "")}


def list_fields(option: Option) -> list[Option]:
    """Return the fields of what an option holds a list or a mapping of; none for plain values."""
    kind = _item_kind(option.kind)
    return list(_walk(kind, f"{option.name}.")) if dataclasses.is_dataclass(kind) else []


@functools.cache
def list_sections() -> Mapping[str, str]:
    """Return the sections, and the first sentence about each."""
    return {
        name: (kind.__doc__ or "").strip().split("\n")[0]
        for name, kind in get_type_hints(Config).items()
        if dataclasses.is_dataclass(kind)
    }


def _walk(owner: Any, prefix: str) -> Iterator[Option]:
    hints, texts = get_type_hints(owner), _read_texts(owner)
    for field in dataclasses.fields(owner):
        kind, name = hints[field.name], f"{prefix}{field.name}"
        if dataclasses.is_dataclass(kind):
            yield from _walk(kind, f"{name}.")
        elif field.name != "given":
            make = field.default_factory
            default = field.default if make is dataclasses.MISSING else make()
            yield Option(name, kind, default, " ".join(texts.get(field.name, "").split()))


def _read_texts(kind: type) -> dict[str, str]:
    """Return what is written below each field, of base classes too."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            parsed = docstring_parser.parse_from_object(base)
            texts |= {param.arg_name: param.description or "" for param in parsed.params}
    return texts


def find_kind(path: str) -> Any:
    """Return the type of an option, or of a field within its value; None if there is none.

    Args:
        path: such as `training.epochs`, or `evaluation.thresholds.metric` of a list's items.
    """
    kind: Any = Config
    for name in path.split("."):
        kind = _item_kind(kind)
        if not dataclasses.is_dataclass(kind):
            return None
        kind = get_type_hints(kind).get(name)
    return kind


def field_names(path: str) -> list[str]:
    """Return the fields of what `path` names, as in `find_kind`."""
    kind = _item_kind(find_kind(path))
    return (
        [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    )


def _item_kind(kind: Any) -> Any:
    """Return what a list holds, or a mapping under its names; other types as they are."""
    kind = without_none(kind)
    arguments = get_args(kind)
    return arguments[-1] if arguments and get_origin(kind) is not Literal else kind
