"""Read a manifest: a table with label, and optionally split, group and more, of every image."""

import codecs
import contextlib
import csv
import io
import itertools
import json
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from components.contract.errors import ConfigurationError, DataError
from components.contract.printable import quote, quote_path
from components.ingest.config import MOST_COLUMNS
from components.ingest.source.columns import Several, spell
from components.storage.folder import read_bytes, reason_of

_Fields = Mapping[str | None, Any]
_COLUMNS = ("path", "label")
_KNOWN = (*_COLUMNS, "split", "group")
_HEADER = "path,label[,split][,group][,...]"


class Row(NamedTuple):
    """The row of one file."""

    label: str
    split: str | None
    group: str | None
    columns: Mapping[str, Any] = {}
    """Name → value of the further columns, as in the file."""


def read_manifest(
    path: str, group_by: str | None = None, wanted: Collection[str] = ()
) -> dict[str, Row]:
    """Read a CSV, JSON Lines or Parquet file with the columns path, label, split and group.

    Args:
        path: path or URL.
        group_by: the column that has the groups; default: group.
        wanted: the further columns to read if there are many.

    Returns:
        Path, relative to the folder of images and with "/" between its parts → row. Rows that
        differ in further columns only become one, with the values of both.

    Raises:
        ConfigurationError: the file's extension is unknown, or it lacks the column `group_by`.
        DataError: a column or value is missing, or rows contradict each other.
        StorageError: the file cannot be read.
    """
    rows: dict[str, Row] = {}
    table = _read_table(path, {spell(name) for name in (*wanted, group_by or "group")})
    group_key = _find_column(table, group_by, path) if group_by else "group"
    for number, fields in enumerate(table, start=1):
        if any(fields.get(None) or ()):
            raise DataError(
                f"Row {number} of {path} has too many fields: quote values with commas."
            )
        for name in _COLUMNS:
            if fields.get(name) in (None, ""):
                others = "" if name in fields else f"; it has {', '.join(map(str, fields))}"
                raise DataError(f"Row {number} of {path} has no {name}{others}.")
        name = posixpath.normpath(str(fields["path"]))
        more = {str(key): value for key, value in fields.items() if key and key not in _KNOWN}
        split, group = (_optional(fields, key) for key in ("split", group_key))
        row = Row(str(fields["label"]), split, group, more)
        earlier = rows.setdefault(name, row)
        if earlier[:3] != row[:3]:
            raise DataError(
                f"Row {number} of {path} contradicts an earlier row on {quote_path(name)}: "
                f"{_describe(row)}, but earlier {_describe(earlier)}."
            )
        if earlier.columns != more:
            rows[name] = row._replace(columns=_merge(earlier.columns, more))
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def _find_column(table: Sequence[_Fields], wanted: str, path: str) -> str:
    names = [str(name) for name in dict.fromkeys(itertools.chain.from_iterable(table)) if name]
    for name in names:
        if spell(name) == spell(wanted):
            return name
    raise ConfigurationError(
        f"ingest.group_by is {quote(wanted)}, but {path} has no such column: it has "
        f"{', '.join(names[:MOST_COLUMNS])}."
    )


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of two rows; values that differ become `Several`."""
    pairs = {name: (one.get(name), other.get(name)) for name in {**one, **other}}
    return {name: a if a == b else Several((a, b)) for name, (a, b) in pairs.items()}


def _describe(row: Row) -> str:
    return f"{quote(row.label)} in {f'split {quote(row.split)}' if row.split else 'any split'}"


def _optional(fields: _Fields, name: str) -> str | None:
    value = fields.get(name)
    return None if value in (None, "") else str(value)


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


def _decode(data: bytes) -> str:
    # Spreadsheets write byte order marks, and call UTF-16 with tabs "Unicode text".
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    # No path contains a zero byte.
    return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-8-sig")


def open_csv(data: bytes, required: Collection[str], header: str) -> "csv.DictReader[str]":
    """Return the rows of a CSV file with commas, semicolons or tabs, by names in lower case.

    Raises:
        ValueError: the first line lacks a column of `required`; it should be like `header`.
    """
    text = _decode(data)
    for delimiter in ",;\t":
        lines = io.StringIO(text, newline="")
        rows = csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True)
        rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or ()]
        if {*required} <= {*rows.fieldnames}:
            return rows
    first = text.partition("\n")[0].strip()
    if not first:
        raise ValueError(f"it is empty; its first line must be {header}")
    if re.search(r"\.\w+[\"']?[,;\t]", first):
        raise ValueError(
            f"its first line is {quote(first)}: put a line {','.join(required)} above it"
        )
    raise ValueError(f"its first line must be {header}, but is {quote(first)}")


def _read_csv(data: bytes, _: Collection[str]) -> Iterator[_Fields]:
    return open_csv(data, _COLUMNS, _HEADER)


def _read_json_lines(data: bytes, _: Collection[str]) -> Iterator[_Fields]:
    for line in _decode(data).split("\n"):
        if line.strip():
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise ValueError(f"{quote(line)} is not a JSON object")
            yield fields


def _read_parquet(data: bytes, wanted: Collection[str]) -> Iterator[_Fields]:
    import pyarrow.parquet

    # Keeps a column of Python objects from running code: CVE-2023-47248.
    import pyarrow_hotfix  # noqa: F401

    # Without threads: given a broken file, those of `read_table` outlive the error and crash the
    # process as it exits.
    source = pyarrow.BufferReader(data)
    file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
    schema = file.schema_arrow
    plain = [field.name for field in schema if _is_plain(field.type)]
    read = [name for name in schema.names if name in _KNOWN]
    # Images, embeddings and hundreds of columns would fill the memory.
    further = [name for name in plain if name not in read]
    if len(further) > MOST_COLUMNS:
        further = [name for name in further if spell(name) in wanted]
    read += further
    unread = dict.fromkeys((name for name in schema.names if name not in read), b"")
    for row in file.read(columns=read, use_threads=False).to_pylist():
        yield {**unread, **row}
        unread = {}


def _is_plain(kind: Any) -> bool:
    """Return whether a column of this type of Arrow's may hold text or numbers."""
    from pyarrow import types

    unusable = (types.is_nested, types.is_binary, types.is_large_binary)
    return not any(is_of(kind) for is_of in (*unusable, types.is_fixed_size_binary))


FORMATS: dict[str, Callable[[bytes, Collection[str]], Iterator[_Fields]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
"""Extension of a manifest → its reader, which may skip further columns that are not wanted."""
TYPELESS = (".csv", ".tsv", ".txt")
"""Extensions of manifests that hold numbers as text."""
