"""A manifest: a table that gives the label of every image, and its split and group if wanted."""

from __future__ import annotations

import csv
import io
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from components.contract.errors import ConfigurationError, DataError
from components.storage.folder import open_folder, reason_of, storage_error

_COLUMNS = ("path", "label")


class Row(NamedTuple):
    """What the manifest says of one file."""

    label: str
    split: str | None
    group: str | None


def read_manifest(path: str) -> dict[str, Row]:
    """Read a CSV, JSON Lines or Parquet file with the columns path, label, and split and group.

    Returns:
        Path, relative to the folder of images and with "/" between its parts, to its row. A row
        that is given twice counts once.

    Raises:
        ConfigurationError: its name does not say what kind of file it is.
        DataError: it lacks a column or a value, or contradicts itself.
        StorageError: it cannot be read.
    """
    rows: dict[str, Row] = {}
    for number, fields in enumerate(_read_table(path), start=1):
        missing = [name for name in _COLUMNS if fields.get(name) in (None, "")]
        if missing:
            raise DataError(f"Row {number} of {path} has no {missing[0]}; it has {_names(fields)}.")
        name = posixpath.normpath(str(fields["path"]))
        row = Row(str(fields["label"]), _optional(fields, "split"), _optional(fields, "group"))
        if rows.setdefault(name, row) != row:
            raise DataError(
                f"Row {number} of {path} contradicts an earlier one on {name}: {row.label!r} in "
                f"split {row.split or 'any'}, but {rows[name].label!r} in "
                f"{rows[name].split or 'any'} before."
            )
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def _names(fields: Mapping[str, Any]) -> str:
    return ", ".join(str(name) for name in fields) or "nothing"


def _optional(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value in (None, "") else str(value)


def _read_table(path: str) -> Iterable[Mapping[str, Any]]:
    suffix = path.rsplit(".", 1)[-1].lower()
    readers = {
        "csv": _read_csv,
        "jsonl": _read_json_lines,
        "ndjson": _read_json_lines,
        "parquet": _read_parquet,
    }
    if suffix not in readers:
        raise ConfigurationError(
            f"ingest.manifest is {path}: its name must end in one of .{', .'.join(readers)}."
        )
    fs, place = open_folder(path)
    try:
        data = fs.cat_file(place)
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error("read the manifest", path, error) from error
    try:
        return list(readers[suffix](data))
    except Exception as error:  # Of the text's encoding, of JSON or of Parquet.
        raise DataError(f"Cannot read the manifest {path}: {reason_of(error)}.") from error


def _read_csv(data: bytes) -> Iterator[Mapping[str, Any]]:
    # Spreadsheets write a byte order mark.
    yield from csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))


def _read_json_lines(data: bytes) -> Iterator[Mapping[str, Any]]:
    for line in data.decode("utf-8-sig").split("\n"):
        if line.strip():
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise ValueError(f"{line[:40]!r} is not a JSON object")
            yield fields


def _read_parquet(data: bytes) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet

    # Without it, a file whose column is of a type of Python's runs code: CVE-2023-47248.
    import pyarrow_hotfix  # noqa: F401

    # Without threads: where a file is broken, those of `read_table` outlive the error, and end
    # the process as it exits.
    source = pyarrow.BufferReader(data)
    file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
    names = file.schema_arrow.names
    wanted = [name for name in (*_COLUMNS, "split", "group") if name in names]
    yield from file.read(columns=wanted, use_threads=False).to_pylist()
