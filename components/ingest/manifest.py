"""Read a manifest: a table with the label, and optionally split and group, of every image."""

from __future__ import annotations

import csv
import io
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from components.contract.errors import ConfigurationError, DataError
from components.storage.folder import explaining_errors, open_folder, reason_of

_COLUMNS = ("path", "label")


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
        missing = [name for name in _COLUMNS if fields.get(name) in (None, "")]
        if missing:
            names = ", ".join(map(str, fields)) or "nothing"
            raise DataError(f"Row {number} of {path} has no {missing[0]}; it has {names}.")
        name = posixpath.normpath(str(fields["path"]))
        row = Row(str(fields["label"]), _optional(fields, "split"), _optional(fields, "group"))
        if rows.setdefault(name, row) != row:
            raise DataError(
                f"Row {number} of {path} contradicts an earlier row on {name}: {row.label!r} in "
                f"split {row.split or 'any'}, but earlier {rows[name].label!r} in "
                f"{rows[name].split or 'any'}."
            )
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


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
    with explaining_errors("read the manifest", path):
        data = fs.cat_file(place)
    try:
        return list(readers[suffix](data))
    except Exception as error:  # Encoding, JSON and Parquet have errors of their own.
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

    # Keeps a column of Python objects from running code: CVE-2023-47248.
    import pyarrow_hotfix  # noqa: F401

    # Without threads: given a broken file, those of `read_table` outlive the error and crash the
    # process as it exits.
    source = pyarrow.BufferReader(data)
    file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
    names = file.schema_arrow.names
    wanted = [name for name in (*_COLUMNS, "split", "group") if name in names]
    yield from file.read(columns=wanted, use_threads=False).to_pylist()
