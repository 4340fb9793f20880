"""Write outcomes as a table with one row per file: Parquet, CSV or JSON Lines."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Protocol

from components.contract.errors import ConfigurationError
from components.predict.flow import Outcome
from components.storage.folder import is_local, open_folder, storage_error

_ROWS_AT_ONCE = 4096

Row = dict[str, Any]


def check_format(path: str) -> None:
    """Raise `ConfigurationError` unless the extension of `path` names a table format."""
    if os.path.splitext(path)[1] not in _WRITERS:
        *others, last = sorted(_WRITERS)
        raise ConfigurationError(
            f"{path} must end in {', '.join(others)} or {last}: the extension selects the format."
        )


def write_table(path: str, outcomes: Iterable[Outcome], *, top: int) -> Iterator[Outcome]:
    """Yield the outcomes and write them to `path`, which appears complete or not at all.

    Args:
        path: path or URL that ends in .parquet, .csv or .jsonl.
        outcomes: outcomes in the order of the rows.
        top: number of labels for each image; a model may have fewer.

    Raises:
        StorageError: it cannot be written.
    """
    check_format(path)
    make_rows = _WRITERS[os.path.splitext(path)[1]]
    with _whole_file(path) as file:
        rows = make_rows(file, list_columns(top))
        rest = iter(outcomes)
        while some := list(itertools.islice(rest, _ROWS_AT_ONCE)):
            rows.write([_make_row(outcome, top) for outcome in some])
            yield from some
        rows.close()


def list_columns(top: int) -> list[str]:
    """Return the column names."""
    ranks = ["", *(f"_{rank}" for rank in range(2, top + 1))]
    labels = [f"{name}{rank}" for rank in ranks for name in ("label", "probability")]
    return ["file", "status", *labels, "category", "reason"]


def _make_row(outcome: Outcome, top: int) -> Row:
    row: Row = dict.fromkeys(list_columns(top))
    row.update(file=_as_text(outcome.file), status=outcome.status)
    row.update(category=outcome.category or None, reason=_as_text(outcome.reason) or None)
    for rank, (label, probability) in enumerate(outcome.ranking, start=1):
        end = "" if rank == 1 else f"_{rank}"
        row[f"label{end}"], row[f"probability{end}"] = label, probability
    return row


def _as_text(name: str) -> str:
    """Escape bytes that are not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _whole_file(path: str) -> Iterator[BinaryIO]:
    """Open a file for writing that appears only if the block succeeds."""
    fs, place = open_folder(path)
    unfinished = f"{place}.{uuid.uuid4().hex}" if is_local(fs) else place
    try:
        # An object in a store appears when it is closed, and is discarded if the block fails.
        file = fs.open(unfinished, "wb")
    except Exception as error:  # Each file system raises its own exceptions.
        raise storage_error("write", path, error) from error
    try:
        yield file
        file.close()
        if is_local(fs):
            os.replace(unfinished, place)
    except BaseException as error:
        if is_local(fs):
            file.close()
            os.remove(unfinished)
        elif hasattr(file, "discard"):
            file.discard()
        if isinstance(error, OSError):
            raise storage_error("write", path, error) from error
        raise


class _Rows(Protocol):
    """Writes rows in one format."""

    def write(self, rows: list[Row]) -> None:
        """Write rows."""

    def close(self) -> None:
        """Finish the table without closing the file."""


class _ParquetRows:
    def __init__(self, file: BinaryIO, columns: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        numbers = {name for name in columns if name.startswith("probability")}
        kinds = [pa.float32() if name in numbers else pa.string() for name in columns]
        self._schema = pa.schema(list(zip(columns, kinds, strict=True)))
        self._make_table = pa.Table.from_pylist
        self._writer = pq.ParquetWriter(file, self._schema)

    def write(self, rows: list[Row]) -> None:
        self._writer.write_table(self._make_table(rows, self._schema))

    def close(self) -> None:
        self._writer.close()


class _CsvRows:
    def __init__(self, file: BinaryIO, columns: list[str]) -> None:
        self._text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        self._writer = csv.DictWriter(self._text, columns)
        self._writer.writeheader()

    def write(self, rows: list[Row]) -> None:
        self._writer.writerows(rows)

    def close(self) -> None:
        self._text.detach()


class _JsonRows:
    def __init__(self, file: BinaryIO, columns: list[str]) -> None:
        self._file = file

    def write(self, rows: list[Row]) -> None:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        self._file.write(text.encode())

    def close(self) -> None:
        pass


_WRITERS: dict[str, Callable[[BinaryIO, list[str]], _Rows]] = {
    ".parquet": _ParquetRows,
    ".csv": _CsvRows,
    ".jsonl": _JsonRows,
}
