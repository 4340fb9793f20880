"""Read a manifest: a table with the label, and optionally split and group, of every image."""

import codecs
import contextlib
import csv
import io
import json
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from components.contract.errors import ConfigurationError, DataError
from components.contract.printable import quote, quote_path
from components.storage.folder import read_bytes, reason_of

_Fields = Mapping[str | None, Any]
_COLUMNS = ("path", "label")
_HEADER = "path,label[,split][,group]"


class Row(NamedTuple):
    """The row of one file."""

    label: str
    split: str | None
    group: str | None


def read_manifest(path: str) -> dict[str, Row]:
    """Read a CSV, JSON Lines or Parquet file with the columns path, label, split and group.

    Returns:
        Path, relative to the folder of images and with "/" between its parts → row. Identical rows
        count once.

    Raises:
        ConfigurationError: the file's extension is unknown.
        DataError: a column or value is missing, or rows contradict each other.
        StorageError: the file cannot be read.
    """
    rows: dict[str, Row] = {}
    for number, fields in enumerate(_read_table(path), start=1):
        if any(fields.get(None) or ()):
            raise DataError(
                f"Row {number} of {path} has too many fields: quote values with commas."
            )
        for name in _COLUMNS:
            if fields.get(name) in (None, ""):
                others = "" if name in fields else f"; it has {', '.join(map(str, fields))}"
                raise DataError(f"Row {number} of {path} has no {name}{others}.")
        name = posixpath.normpath(str(fields["path"]))
        row = Row(str(fields["label"]), _optional(fields, "split"), _optional(fields, "group"))
        if rows.setdefault(name, row) != row:
            raise DataError(
                f"Row {number} of {path} contradicts an earlier row on {quote_path(name)}: "
                f"{_describe(row)}, but earlier {_describe(rows[name])}."
            )
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def _describe(row: Row) -> str:
    return f"{quote(row.label)} in {f'split {quote(row.split)}' if row.split else 'any split'}"


def _optional(fields: _Fields, name: str) -> str | None:
    value = fields.get(name)
    return None if value in (None, "") else str(value)


def _read_table(path: str) -> list[_Fields]:
    suffix = posixpath.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise ConfigurationError(
            f"ingest.manifest is {path}: its name must end in one of {', '.join(FORMATS)}."
        )
    data = read_bytes(path)
    with explaining_table("manifest", path):
        return list(FORMATS[suffix](data))


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


def _read_csv(data: bytes) -> Iterator[_Fields]:
    return open_csv(data, _COLUMNS, _HEADER)


def _read_json_lines(data: bytes) -> Iterator[_Fields]:
    for line in _decode(data).split("\n"):
        if line.strip():
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise ValueError(f"{quote(line)} is not a JSON object")
            yield fields


def _read_parquet(data: bytes) -> Iterator[_Fields]:
    import pyarrow.parquet

    # Keeps a column of Python objects from running code: CVE-2023-47248.
    import pyarrow_hotfix  # noqa: F401

    # Without threads: given a broken file, those of `read_table` outlive the error and crash the
    # process as it exits.
    source = pyarrow.BufferReader(data)
    file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
    names = file.schema_arrow.names
    wanted = [name for name in (*_COLUMNS, "split", "group") if name in names]
    yield from file.read(columns=wanted, use_threads=False).to_pylist()


FORMATS: dict[str, Callable[[bytes], Iterator[_Fields]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
"""Extension of a manifest → its reader."""
