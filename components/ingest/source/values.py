"""Read the values of tables and shards: labels, splits and groups, and a manifest's other columns.

What stands for a label, a split or a group is text or a whole number. Anything else is refused: a
class called `['cat']`, `True` or `nan` would be trained without an error. A further column gets one
type, and becomes the feature `image/columns/NAME` of every example and a slicing of the evaluation.
"""

import datetime
import decimal
import functools
import math
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from components.contract.errors import ConfigurationError
from components.contract.example import EVAL, SLICINGS, SPAN, TEST, TRAIN
from components.contract.printable import quote
from components.ingest.source.folder_layout import split_of_name

# Whole numbers that a tool has written as floats, for lack of a missing integer.
_WHOLE = re.compile(r"(-?\d+)\.0+")
_MISSING = ("nan", "<na>", "nat")
_LONGEST_MISSING = 4
# FiftyOne's `_unlabeled`, CVAT's and Datumaro's `no_label`.
_UNLABELED = ("unlabeled", "unlabelled", "nolabel")
# TFDS and Hugging Face mark images without a label by it.
_NO_NUMBER = "-1"

Plain = str | int | float
_LONGEST_TEXT = 200
_LONGEST_NAME = 64
# Columns of a manifest and of the predictions that have a meaning of their own.
_RESERVED = {"path", "label", "split", "group", SPAN, "columns", *SLICINGS} | {
    "filename",
    "probabilities",
    "baseline_probabilities",
}
_ODD = re.compile(r"[^a-z0-9_.-]+")
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
# Numbers of more digits are most likely keys, which must not be rounded.
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,14}|(?=\.))(\.\d+)?(e[+-]?\d{1,3})?", re.IGNORECASE)
# Slices of single numbers.
_MOST_NUMBERS = 12
# Missing values of a column of numbers, as tools write them into CSV.
_MISSING_NUMBERS = ("nan", "NaN", "NA")
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


class RefusedValueError(ValueError):
    """Continues a sentence such as "the label 'x', which" or "the column age"."""


def read_value(value: Any) -> str | None:
    """Return a value as text; None if it is missing. A whole number loses its fraction of 0.

    Raises:
        RefusedValueError: the value is neither text nor a whole number.
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        if len(value) <= _LONGEST_MISSING and value.lower() in _MISSING:
            raise RefusedValueError("is what tools write for a missing value: leave it empty")
        if value.endswith("0") and (whole := _WHOLE.fullmatch(value)):
            return whole[1]
        return value if value and not value.isspace() else None
    if isinstance(value, list):
        if len(value) > 1:
            raise RefusedValueError("has several values: give one")
        return read_value(value[0]) if value else None
    if value is None or value != value:  # NaN, NaT and the like
        return None
    if isinstance(value, float | decimal.Decimal) and value % 1 == 0:
        value = int(value)
    if not isinstance(value, int | datetime.date) or isinstance(value, bool):
        raise RefusedValueError("is neither text nor a whole number: write it as text")
    return str(value)


def read_label(value: Any, names: Mapping[str, str] | None = None) -> str | None:
    """Return a label, a number by its name if that is known; None for an unlabeled image.

    Raises:
        RefusedValueError: the value is no label.
    """
    text = read_value(value)
    if text is None or text == _NO_NUMBER:
        return None
    if names:
        text = names.get(text.lstrip("0") or "0" if text.isdecimal() else text, text)
    return None if is_unlabeled(text) else text


@functools.lru_cache(maxsize=4096)
def is_unlabeled(label: str) -> bool:
    """Return whether a label, or the name of a label folder, is a tool's word for none."""
    return re.sub(r"[\W_]", "", label).lower() in _UNLABELED


def read_split(value: Any, names: Collection[str]) -> str | None:
    """Return train, eval, test or a split that `ingest.splits` names; None if a hash decides.

    Raises:
        RefusedValueError: the split is unknown: no model would be trained or judged on it.
    """
    name = read_value(value)
    split = name and (split_of_name(name.strip()) or name)
    if split is None or split in (TRAIN, EVAL, TEST, *names):
        return split
    raise RefusedValueError(
        "is unknown: name train, eval or test, list it in ingest.splits, or leave it empty, so "
        "that a hash of the image decides"
    )


class Several(NamedTuple):
    """The values of a column in several rows of one image."""

    values: tuple[Any, ...]


def keep_columns(
    rows: Sequence[Mapping[str, Any]], *, source: str, parse: bool
) -> list[dict[str, Plain]]:
    """Return the values of each row, those of a column with one type; missing ones have no entry.

    Args:
        rows: name → value of each row; None, "" and NaN are missing values.
        source: the table, for messages.
        parse: whether numbers are written as text, as in CSV.

    Raises:
        ConfigurationError: a column cannot be kept.
    """
    kept: list[dict[str, Plain]] = [{} for _ in rows]
    for name in dict.fromkeys(name for row in rows for name in row):
        try:
            values = _read_column(rows, name, parse=parse)
        except RefusedValueError as reason:
            raise ConfigurationError(
                f"ingest.columns names {quote(name)}, but that column of {source} {reason}."
            ) from None
        for row, value in zip(kept, values, strict=True):
            if value is not None:
                row[name] = value
    return kept


def spell(name: str) -> str:
    """Return the name of a column as part of a feature's name."""
    return _ODD.sub("_", name.strip().lower()).strip("_") if name.isascii() else name


def _read_column(
    rows: Sequence[Mapping[str, Any]], name: str, *, parse: bool
) -> list[Plain | None]:
    """Return the value of every row, all of one type; None where it is missing."""
    if not re.fullmatch(rf"[a-z0-9_.-]{{1,{_LONGEST_NAME}}}", name):
        raise RefusedValueError(
            f"needs a name of 1 to {_LONGEST_NAME} letters from a to z, digits, -, . and _"
        )
    if name in _RESERVED:
        raise RefusedValueError("has a reserved name: rename it")
    values = [_clean(row.get(name)) for row in rows]
    kind = _choose_type({value for value in values if value is not None}, parse=parse)
    missing = () if kind is str else _MISSING_NUMBERS
    return [None if value is None or value in missing else kind(value) for value in values]


def _clean(value: Any) -> Plain | None:
    if isinstance(value, Several):
        raise RefusedValueError("has several values for one image")
    if isinstance(value, bytes | list | tuple | Mapping):
        raise RefusedValueError("has values that are neither text nor numbers")
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    # Dates and decimal numbers of Parquet have a text form.
    text: Plain = value if isinstance(value, str | int | float) else str(value)
    if isinstance(text, str):
        if len(text) > _LONGEST_TEXT:
            raise RefusedValueError(f"has values of more than {_LONGEST_TEXT} characters")
        if not text.isprintable():
            raise RefusedValueError("has values with line breaks or unprintable characters")
    return text


def _choose_type(values: Collection[Plain], *, parse: bool) -> type[Plain]:
    """Return the first of int, float and str that fits all values of a column."""
    if not values:
        raise RefusedValueError("has no values")
    known = (value for value in values if not (parse and value in _MISSING_NUMBERS))
    kinds = {_type_of(value, parse=parse) for value in known}
    return next((kind for kind in (str, float, int) if kind in kinds), str)


def _type_of(value: Plain, *, parse: bool) -> type[Plain]:
    if isinstance(value, str):
        if parse and _INTEGER.fullmatch(value):
            return int
        if not (parse and _DECIMAL.fullmatch(value)):
            return str
        value = float(value)
    if isinstance(value, int):
        return int if -(2**63) <= value < 2**63 else str
    return float if abs(value) <= _LARGEST_FLOAT else str


def describe_columns(rows: Iterable[Mapping[str, Plain]]) -> dict[str, dict[str, Any]]:
    """Return the type of each column, and how the evaluation divides its values into slices.

    `type` is str, int or float. `values` is the number of slices of single values; numbers of many
    values have `bounds` instead, about their quartiles. The last span has a slice of its own.
    """
    columns: dict[str, list[Plain]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: _describe(name, columns[name]) for name in sorted(columns)}


def _describe(name: str, values: Sequence[Plain]) -> dict[str, Any]:
    kind = type(values[0])
    if name == SPAN:
        return {"type": kind.__name__, "bounds": [max(values)]}
    distinct = len(set(values))
    if kind is str or distinct <= _MOST_NUMBERS:
        return {"type": kind.__name__, "values": distinct}
    quartiles = statistics.quantiles(map(float, values), n=4, method="inclusive")
    return {
        "type": kind.__name__,
        "bounds": sorted({kind(float(f"{bound:.3g}")) for bound in quartiles}),
    }
