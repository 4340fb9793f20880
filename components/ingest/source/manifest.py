"""Read a manifest: a table with label, and optionally split, group and more, of every image."""

import contextlib
import csv
import functools
import io
import itertools
import json
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from components.contract.errors import ConfigurationError, DataError
from components.contract.printable import name_some, quote, quote_path
from components.ingest.source.values import (
    RefusedValueError,
    Several,
    read_label,
    read_split,
    read_value,
    spell,
)
from components.storage.folder import read_bytes, reason_of

_Fields = Mapping[str | None, Any]
_COLUMNS = ("path", "label")
_KNOWN = (*_COLUMNS, "split", "group")
_HEADER = "path,label[,split][,group][,...]"
# Hugging Face's metadata.csv has the first.
_PATHS = ("file_name", "filename")
_MOST_NAMED, _LONGEST = 12, 80
_TWICE = "it has the column {} twice: remove one"


class Row(NamedTuple):
    """The row of one file."""

    label: str | None
    """None if it has none."""
    split: str | None
    group: str | None
    columns: Mapping[str, Any] = {}
    """Name, as `spell` gives it, → value of the further columns."""


def read_manifest(
    path: str, wanted: Collection[str] = (), *, splits: Collection[str] = (), folder: str = "."
) -> dict[str, Row]:
    """Read a CSV, JSON Lines or Parquet file with the columns path, label, split and group.

    Args:
        path: path or URL.
        wanted: the further columns to read, as in `ingest.columns`.
        splits: splits that may be named beside train, eval and test.
        folder: the folder of images, with which paths may start.

    Returns:
        Path, relative to the folder of images and with "/" between its parts → row. Rows that
        differ in further columns only become one, with the values of both.

    Raises:
        ConfigurationError: the file's extension is unknown, or it lacks a named column.
        DataError: a column or value is missing or wrong, or rows contradict each other.
        StorageError: the file cannot be read.
    """
    rows: dict[str, Row] = {}
    table = _read_table(path, {*map(spell, wanted)})
    columns = [name for name in dict.fromkeys(itertools.chain.from_iterable(table)) if name]
    further = {spell(name): _find_column(columns, name, path) for name in wanted}
    readers: list[tuple[str, Callable[[Any], str | None]]] = [
        ("path", read_value),
        ("label", read_label),
        ("split", functools.partial(read_split, names=splits)),
        ("group", read_value),
    ]
    above = f"{folder.rstrip('/')}/"
    for number, fields, (name, label, split, of_group) in _read_rows(table, readers, path):
        if not name:
            has = "" if "path" in fields else f"; it has {_join(columns)}"
            raise DataError(f"Row {number} of {path} has no path{has}.")
        name = name.removeprefix(above)
        name = name if "://" in name else posixpath.normpath(name)
        more = {spelled: fields.get(key) for spelled, key in further.items()}
        row = Row(label, split, of_group, more)
        earlier = rows.setdefault(name, row)
        if earlier[:3] != row[:3]:
            raise DataError(
                f"Row {number} of {path} contradicts an earlier row on {quote_path(name)}: "
                f"{_describe(row)}, but earlier {_describe(earlier)}."
            )
        if earlier.columns != more:
            rows[name] = row._replace(columns=_merge(earlier.columns, more))
    if not any(row.label for row in rows.values()):
        what = f"No row of {path} has a label; it has {_join(columns)}."
        raise DataError(what if rows else f"{path} has no rows.")
    return rows


def is_manifest(path: str) -> bool:
    """Return whether a table has the columns of path and label."""
    try:
        table = _read_table(path, ())
    except DataError:
        return False
    return any({*_COLUMNS} <= fields.keys() for fields in table[:1])


def _read_rows(
    table: Sequence[_Fields], readers: Sequence[tuple[str, Callable[[Any], str | None]]], path: str
) -> Iterator[tuple[int, _Fields, list[str | None]]]:
    """Yield the number of each row, its fields, and what the readers of columns make of them."""
    is_text = path.lower().endswith(TYPELESS)
    for number, fields in enumerate(table, start=1):
        if not fields.get("path") and not any(map(_has_content, fields.values())):
            continue  # Spreadsheets write empty rows.
        column = ""
        try:
            if fields.get(None) and any(fields[None]):
                raise RefusedValueError("too many fields: quote values with commas")
            if is_text and fields["label"] is None:
                raise RefusedValueError("too few fields: it needs a path and a label")
            values = [read(fields.get(column := name)) for name, read in readers]
        except RefusedValueError as error:
            has = f"the {column} {quote(fields[column])}, which " if column else ""
            raise DataError(f"Row {number} of {path} has {has}{error}.") from None
        yield number, fields, values


def _has_content(value: Any) -> bool:
    return any(value) if isinstance(value, list) else value not in (None, "")


def _find_column(columns: Sequence[str], wanted: str, path: str) -> str:
    """Return the column that `ingest.columns` names, or raise `ConfigurationError`."""
    same = [name for name in columns if spell(name) == spell(wanted)]
    if len(same) == 1:
        return same[0]
    has = f"several: {_join(same)}" if same else f"no such column: it has {_join(columns)}"
    raise ConfigurationError(f"ingest.columns names {quote(wanted)}, but {path} has {has}.")


def _join(columns: Sequence[str]) -> str:
    return name_some([name[:_LONGEST] for name in columns], _MOST_NAMED)


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of two rows; values that differ become `Several`."""
    pairs = {name: (first.get(name), second.get(name)) for name in {**first, **second}}
    return {name: a if a == b else Several((a, b)) for name, (a, b) in pairs.items()}


def _describe(row: Row) -> str:
    return f"{quote(row.label)} in {f'split {quote(row.split)}' if row.split else 'any split'}"


def _read_table(path: str, wanted: Collection[str]) -> list[_Fields]:
    suffix = posixpath.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise ConfigurationError(
            f"ingest.manifest is {path}: its name must end in one of {', '.join(FORMATS)}."
        )
    data = read_bytes(path)
    with explaining_table("manifest", path):
        return list(FORMATS[suffix](data, wanted))


@contextlib.contextmanager
def explaining_table(kind: str, path: str) -> Iterator[None]:
    """Turn the errors of reading a table, such as a "manifest", into a `DataError`."""
    try:
        yield
    except UnicodeError as error:
        raise DataError(f"The {kind} {path} is not UTF-8 text: save it as UTF-8.") from error
    except Exception as error:  # CSV, JSON and Parquet have errors of their own.
        raise DataError(f"Cannot read the {kind} {path}: {reason_of(error)}.") from error


@functools.lru_cache
def name_columns(names: tuple[str, ...]) -> list[str]:
    """Return the names of a table's columns, those with a meaning spelled as here.

    Raises:
        ValueError: two columns have the same meaning.
    """
    lower = [name.strip().lower() for name in names]
    # The first of these that there is.
    paths = [name for name in ("path", *_PATHS) if name in lower][:1]
    spelled = [
        "path" if low in paths else low if low in _KNOWN else name
        for name, low in zip(names, lower, strict=True)
    ]
    for name in filter(None, spelled):
        if spelled.count(name) > 1:
            raise ValueError(_TWICE.format(name[:_LONGEST]))
    return spelled


def open_csv(data: bytes, required: Collection[str], header: str) -> "csv.DictReader[str]":
    """Return the rows of a CSV file with commas, semicolons or tabs, by names in lower case.

    Raises:
        ValueError: the first line lacks a column of `required`, or has one twice; it should be like
            `header`.
    """
    text = data.decode("utf-8-sig")
    for delimiter in ",;\t":
        lines = io.StringIO(text, newline="")
        rows = csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True)
        names = tuple(name.strip().lower() for name in rows.fieldnames or ())
        if {*required} <= {*names} or (required == _COLUMNS and {*_PATHS} & {*names}):
            rows.fieldnames = name_columns(names)
            if {*required} <= {*rows.fieldnames}:
                return rows
    first = text.partition("\n")[0].strip()
    if not first:
        raise ValueError(f"it is empty; its first line must be {header}")
    raise ValueError(f"its first line must be {header}, but is {quote(first)}")


def _read_csv(data: bytes, _: Collection[str]) -> Iterator[_Fields]:
    return open_csv(data, _COLUMNS, _HEADER)


def _read_json_lines(data: bytes, _: Collection[str]) -> Iterator[_Fields]:
    lines = (line for line in data.decode("utf-8-sig").split("\n") if line.strip())
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line, object_pairs_hook=_read_object)
            if not isinstance(fields, dict):
                raise ValueError(f"{quote(line)} is not a JSON object")
            names = name_columns(tuple(fields))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
        yield dict(zip(names, fields.values(), strict=True))


def _read_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise ValueError(_TWICE.format(doubled[0][:_LONGEST]))
    return dict(pairs)


def _read_parquet(data: bytes, wanted: Collection[str]) -> Iterator[_Fields]:
    import pyarrow.parquet

    # Keeps a column of Python objects from running code: CVE-2023-47248.
    import pyarrow_hotfix  # noqa: F401

    # Without threads: given a broken file, those of `read_table` outlive the error and crash the
    # process as it exits.
    source = pyarrow.BufferReader(data)
    file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
    schema = file.schema_arrow
    names = dict(zip(schema.names, name_columns(tuple(schema.names)), strict=True))
    # Images, embeddings and hundreds of columns would fill the memory.
    read = [name for name, known in names.items() if known in _KNOWN or spell(name) in wanted]
    unread = dict.fromkeys(names.values(), b"")
    classes = {names[name]: texts for name, texts in read_class_labels(schema).items()}.get(
        "label", ()
    )
    for row in file.read(columns=read, use_threads=False).to_pylist():
        fields = {**unread, **{names[name]: value for name, value in row.items()}}
        if classes and isinstance(number := fields.get("label"), int) and number >= 0:
            if number >= len(classes):
                raise ValueError(f"it has the label {number}, but {len(classes):,} names of labels")
            fields["label"] = classes[number]
        yield fields
        unread = {}


def read_class_labels(schema: Any) -> Mapping[str, Sequence[str]]:
    """Return column → names of its integers, as `datasets.ClassLabel` keeps them in a schema."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return {
            name: tuple(map(str, feature.get("names", ())))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


FORMATS: dict[str, Callable[[bytes, Collection[str]], Iterator[_Fields]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
"""Extension of a manifest → its reader, which may skip columns that are not wanted."""
TYPELESS = (".csv", ".tsv", ".txt")
"""Extensions of manifests that hold numbers as text."""
