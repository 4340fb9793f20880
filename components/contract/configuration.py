"""Configuration classes: frozen dataclasses that pydantic validates, and their JSON form.

Every stage has one. It travels to its executor as one JSON property and is rebuilt there by the
same class; the command line, YAML files and run records are made from it too.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, dataclass_transform

import pydantic
import pydantic.dataclasses
from annotated_types import Interval
from pydantic import AfterValidator, Strict

from components.contract.error_messages import LARGEST, explain
from components.contract.errors import ConfigurationError

_Config = TypeVar("_Config")


def _reject_unreadable(text: str) -> str:
    if "\0" in text:
        raise ValueError("text without NUL characters")
    # Bytes of a command line that are not UTF-8. TFX and readers of JSON would fail on them.
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("UTF-8 text; rename a folder or file whose name is not")
    return text


Count = Annotated[int, Strict(), Interval(ge=0, le=LARGEST)]
Positive = Annotated[int, Strict(), Interval(ge=1, le=LARGEST)]
Number = Annotated[float, Strict()]
Fraction = Annotated[float, Strict(), Interval(ge=0, le=1)]
Text = Annotated[str, Strict(), AfterValidator(_reject_unreadable)]


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def configuration(section: str = "") -> Callable[[type[_Config]], type[_Config]]:
    """Make a class a frozen dataclass whose instances pydantic validates.

    An invalid value raises `ConfigurationError`, which names the `section` of the class and the
    field, quotes the value and says what is allowed.
    """
    settings = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)

    def decorate(owner: type[_Config]) -> type[_Config]:
        validated: Any = pydantic.dataclasses.dataclass(frozen=True, config=settings)(owner)
        validate = validated.__init__

        @functools.wraps(validate)
        def init(self: Any, *args: Any, **fields: Any) -> None:
            try:
                validate(self, *args, **fields)
            except pydantic.ValidationError as error:
                raise ConfigurationError(explain(error, validated, section)) from None

        validated.__init__ = init
        return validated  # type: ignore[no-any-return]

    return decorate


def require(condition: bool, message: str) -> None:
    """Raise `ConfigurationError(message)` unless `condition` holds."""
    if not condition:
        raise ConfigurationError(message)


def to_dict(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a dictionary, nested dataclasses included."""
    return dataclasses.asdict(config)


def to_json(config: Any) -> str:
    """Serialize a dataclass with sorted keys, so that equal configurations give equal text."""
    return json.dumps(to_dict(config), sort_keys=True)


_make_adapter: Any = functools.cache(pydantic.TypeAdapter)


def from_dict(kind: type[_Config], fields: Mapping[str, Any]) -> _Config:
    """Rebuild a dataclass from the output of `to_dict`, and validate it as `configuration` does."""
    try:
        config: _Config = _make_adapter(kind).validate_python(fields)
    except pydantic.ValidationError as error:
        raise ConfigurationError(explain(error, kind)) from None
    return config


def from_json(kind: type[_Config], text: str) -> _Config:
    """Rebuild and validate a dataclass from the output of `to_json`."""
    return from_dict(kind, json.loads(text))
