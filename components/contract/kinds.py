"""What an annotation asks of a value, in words and as the check of each configuration field."""

from __future__ import annotations

import dataclasses
import functools
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from components.contract.errors import ConfigurationError

LARGEST = 2**31 - 1
"""Whole numbers beyond this fit into no count of TensorFlow's, Beam's or the operating system's."""

_MOST_DIGITS = 18

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def read_number(text: str) -> int | None:
    """Return the whole number that a name is; None for any other text, such as "²"."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


def check_types(config: Any, section: str) -> None:
    """Check each field of a dataclass against its annotation; numbers must be finite.

    Args:
        config: an instance of it.
        section: that the messages name before the field; "" for none.

    Raises:
        ConfigurationError: quotes the value that is wrong.
    """
    owner: Any = type(config)
    for name, kind in _find_kinds(owner).items():
        value = getattr(config, name)
        if not _fits(value, kind):
            place = f"{section}.{name}" if section else name
            raise ConfigurationError(f"{place} is {show(value)}: it must be {_limit(value, kind)}.")


@functools.cache
def _find_kinds(owner: Any) -> dict[str, Any]:
    hints = get_type_hints(owner)
    return {field.name: hints[field.name] for field in dataclasses.fields(owner)}


def _fits(value: Any, kind: Any) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        # True equals 1.
        return any(type(value) is type(one) and value == one for one in arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(part, one)
            for item in value.items()
            for part, one in zip(item, arguments, strict=True)
        )
    if origin is list:
        return isinstance(value, list) and all(_fits(one, arguments[0]) for one in value)
    return isinstance(value, _CLASSES.get(kind, kind)) and _is_usual(value, kind)


_CLASSES: dict[Any, Any] = {float: (int, float)}


def _is_usual(value: Any, kind: Any) -> bool:
    """Say whether a value of the right class is one that everything behind it can take."""
    if kind is not bool and isinstance(value, bool):
        return False
    if isinstance(value, int | float):
        return abs(value) <= LARGEST if kind is int else math.isfinite(_to_float(value))
    return "\0" not in value if isinstance(value, str) else True


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _limit(value: Any, kind: Any) -> str:
    wanted = describe_kind(kind)
    if isinstance(value, str) and "\0" in value:
        return f"{wanted} without NUL characters"
    if isinstance(value, int) and not isinstance(value, bool) and wanted == "a whole number":
        return f"{wanted} of at most {LARGEST:,} either way"
    return f"{wanted}, and finite" if isinstance(value, float) and wanted == "a number" else wanted


def show(value: Any) -> str:
    """Quote a value, shortened; what is nested or has thousands of digits, too."""
    if value is None:
        return "null"
    try:
        return _SHOWN.repr(value)
    except ValueError:
        return "a number of thousands of digits"


def without_none(kind: Any) -> Any:
    """Return the type of a value that is given, where none need be."""
    if get_origin(kind) in (Union, types.UnionType):
        [*others] = (one for one in get_args(kind) if one is not type(None))
        return others[0] if len(others) == 1 else typing.Union[tuple(others)]  # noqa: UP007
    return kind


def describe_kind(kind: Any) -> str:
    """Say what a value has to be, in words."""
    kind = without_none(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(map(describe_kind, arguments))
    if origin is Literal:
        *others, last = map(str, arguments)
        return f"{', '.join(others)} or {last}" if others else last
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = arguments[1]
        if dataclasses.is_dataclass(inner):
            return "fields for each name, such as {name: {field: value}}"
        return f"{describe_kind(inner)} for each name, such as {{name: value}}"
    if origin is list:
        return "a list, such as [value, value]"
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")
