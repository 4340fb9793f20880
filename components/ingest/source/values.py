"""Read the values that stand for a label, a split or a group: one rule for tables and shards.

Text and whole numbers are taken. Anything else is refused: a class called `['cat']`, `True` or
`nan` would be trained without an error.
"""

import datetime
import decimal
import functools
import re
from collections.abc import Collection, Mapping
from typing import Any

from components.contract.example import EVAL, TEST, TRAIN
from components.ingest.source.folder_layout import split_of_name

# Whole numbers that a tool has written as floats, for lack of a missing integer.
_WHOLE = re.compile(r"(-?\d+)\.0+")
_MISSING = ("nan", "<na>", "nat")
_LONGEST_MISSING = 4
# FiftyOne's `_unlabeled`, CVAT's and Datumaro's `no_label`.
_UNLABELED = ("unlabeled", "unlabelled", "nolabel")
# TFDS and Hugging Face mark images without a label by it.
_NO_NUMBER = "-1"


class RefusedValueError(ValueError):
    """Continues a sentence such as "the label 'x', which"."""


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
