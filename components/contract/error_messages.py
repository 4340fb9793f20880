"""Error messages for configuration: pydantic's errors as sentences, with suggestions for typos."""

import dataclasses
import difflib
import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from components.contract.errors import ConfigurationError
from components.contract.printable import make_printable, quote

LARGEST = 2**31 - 1
"""Largest integer; counters of TensorFlow, Beam and the operating system hold no more."""

_UNKNOWN = "unexpected_keyword_argument"
_MOST_SUGGESTIONS = 3


def explain(error: ValidationError, owner: Any, section: str = "") -> str:
    """Describe the first of pydantic's errors in one sentence.

    `section` is the name of the section of `owner`, a configuration class.
    """
    errors: list[Any] = error.errors(include_url=False)
    # A misspelled required field is missing as well.
    details = next((problem for problem in errors if problem["type"] == _UNKNOWN), errors[0])
    kind, cause = details["type"], details.get("ctx", {}).get("error")
    path, expected = find_field(owner, details["loc"])
    place = make_printable(".".join(filter(None, (section, path))))
    if isinstance(cause, ConfigurationError):
        # A class does not know the key that it is the value of.
        head, _, rest = str(cause).partition(": ")
        return f"{place}.{rest}" if place.startswith(f"{head}.") else str(cause)
    last = str(details["loc"][-1]) if details["loc"] else ""
    if kind == _UNKNOWN:
        fields = get_fields(expected)
        hint = did_you_mean(last, fields) or f" It has {', '.join(fields)}."
        return f"{place or 'The configuration'} has no field {quote(last)}.{hint}"
    if kind == "missing":
        return f"{place.rpartition('.')[0] or 'The configuration'} needs a value for '{last}'."
    value = details["input"]
    wanted = describe(expected)
    if kind == "finite_number":
        wanted = wanted.replace("a number", "a finite number")
    elif kind == "less_than_equal" and details["ctx"]["le"] == LARGEST:
        wanted = f"at most {LARGEST:,}"
    elif cause:
        wanted = str(cause)
    hint = did_you_mean(value, list_choices(expected)) if isinstance(value, str) else ""
    if value is None and ":" in last:
        # YAML reads {a:1} as a text without a value.
        hint = " Put a space after the colon."
    return f"{place} is {quote(value)}: it must be {wanted}.{hint}"


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return " Did you mean 'x'?" for a misspelled name, or "" if no known name is close.

    Names are `section.field` or plain; `prefix`, such as "--", is printed before each suggestion.
    """
    known, last = list(known), name.rpartition(".")[2]
    by_last: dict[str, list[str]] = {}
    for option in known:
        by_last.setdefault(option.rpartition(".")[2], []).append(option)
    similar = by_last.get(last) or difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    for field in () if similar else difflib.get_close_matches(last, by_last, n=1, cutoff=0.75):
        similar = by_last[field]
    # If a section was named, prefer the most similar one.
    similar = sorted(similar, key=lambda option: -difflib.SequenceMatcher(a=name, b=option).ratio())
    most = 1 if "." in name and last in by_last else _MOST_SUGGESTIONS
    close = " or ".join(f"'{prefix}{option}'" for option in similar[:most])
    return f" Did you mean {close}?" if close else ""


@functools.cache
def get_fields(kind: Any) -> Mapping[str, Any]:
    """Return the fields of a configuration class with their types; none for other types."""
    kind = strip(kind)
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def find_field(owner: Any, path: Sequence[int | str]) -> tuple[str, Any]:
    """Follow a path of fields, list indices and mapping keys as far as it exists.

    Return it as text, such as `thresholds[0].metric`, and the type of what it leads to.
    """
    place, kind = "", owner
    for part in path:
        plain = strip(kind)
        inner, fields = get_args(plain), get_fields(kind)
        if part in fields:
            place, kind = f"{place}.{part}", fields[str(part)]
        elif get_origin(plain) is list and isinstance(part, int):
            place, kind = f"{place}[{part}]", inner[0]
        elif get_origin(plain) is dict and part != "[key]":
            place, kind = f"{place}.{part}", inner[1]
        else:
            break
    return place.removeprefix("."), kind


def strip(kind: Any) -> Any:
    """Return a type without constraints and without None."""
    members = list(_members(kind))
    kind = members[0] if len(members) == 1 else kind
    return kind.__origin__ if get_origin(kind) is Annotated else kind


def _members(kind: Any) -> Iterator[Any]:
    """Yield the members of a union but None; the type itself if it is no union."""
    if get_origin(kind) in (Union, types.UnionType):
        yield from (member for member in get_args(kind) if member is not type(None))
    else:
        yield kind


def list_choices(kind: Any) -> list[str]:
    """Return the values of the literals in a type."""
    literals = (member for member in _members(kind) if get_origin(member) is Literal)
    return [str(value) for literal in literals for value in get_args(literal)]


def accepts(kind: Any, wanted: type | None) -> bool:
    """Whether a type, or a member of the union that it is, is `wanted`."""
    if wanted is None:
        return type(None) in get_args(kind)
    return any(strip(member) is wanted for member in _members(kind))


def describe(kind: Any) -> str:
    """Describe the values that a type allows, such as "a number from 0 to 1"."""
    plain = [
        _describe_one(member) for member in _members(kind) if get_origin(member) is not Literal
    ]
    *others, last = *plain, *list_choices(kind)
    return f"{', '.join(others)} or {last}" if others else last


def _describe_one(kind: Any) -> str:
    plain = strip(kind)
    if get_origin(plain) is dict:
        inner = get_args(plain)[1]
        if get_fields(inner):
            return "fields for each name, such as {name: {field: value}}"
        if get_origin(strip(inner)) is list:
            return "a list for each name, such as {name: [value, value]}"
        example = "train: 0.8, eval: 0.2" if strip(inner) is float else "name: value"
        return f"{describe(inner)} for each name, such as {{{example}}}"
    if get_origin(plain) is list:
        return "a list, such as [value, value]"
    if get_fields(plain):
        return "fields, such as {field: value}"
    names = {bool: "true or false", int: "a whole number", float: "a number"}
    return f"{names.get(plain, 'text')}{_describe_bounds(kind)}"


def _describe_bounds(kind: Any) -> str:
    bounds: dict[str, Any] = {}
    for constraint in getattr(kind, "__metadata__", ()):
        for name in ("ge", "gt", "le", "lt"):
            if (bound := getattr(constraint, name, None)) not in (None, LARGEST):
                bounds[name] = f"{bound:,}"
    match bounds:
        case {"ge": low, "le": high}:
            return f" from {low} to {high}"
        case {"ge": low, "lt": high}:
            return f" from {low} to below {high}"
        case {"ge": low}:
            return f" of at least {low}"
        case {"gt": low}:
            return f" above {low}"
    return ""
