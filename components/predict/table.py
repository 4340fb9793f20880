"""Write outcomes as a table with one row per file: Parquet, CSV or JSON Lines."""

import contextlib
import csv
import io
import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from components.contract.errors import ConfigurationError, StorageError
from components.contract.model_files import KNOWN, KNOWN_SCORE
from components.contract.printable import disarm
from components.host.stopping import before_stopping
from components.predict.flow import FileOutcome
from components.storage.folder import is_local, open_folder, storage_error

_ROWS_AT_ONCE = 4096
_KNOWN = (KNOWN, KNOWN_SCORE)

Row = dict[str, Any]
_Write = Callable[[list[Row]], object]


def check_table(path: str) -> None:
    """Raise an error unless `path` ends as a table does and, on this machine, has a folder."""
    if os.path.splitext(path)[1] not in _WRITERS:
        *others, last = sorted(_WRITERS)
        raise ConfigurationError(
            f"{path} must end in {', '.join(others)} or {last}: the extension selects the format."
        )
    fs, place = open_folder(path)
    folder = os.path.dirname(os.path.abspath(place))
    if is_local(fs) and not os.path.isdir(folder):
        raise StorageError(f"Cannot write {path}: there is no folder {folder}.")


def write_table(path: str, outcomes: Iterable[FileOutcome], *, top: int) -> Iterator[FileOutcome]:
    """Yield the outcomes and write them to `path`, which appears complete or not at all.

    The path or URL ends in .parquet, .csv or .jsonl; an existing file is replaced. `top` is the
    number of labels for each image; a model may have fewer.
    """
    open_rows = _WRITERS[os.path.splitext(path)[1]]
    with _whole_file(path) as file, open_rows(file, _list_columns(top)) as write:
        rest = iter(outcomes)
        while some := list(itertools.islice(rest, _ROWS_AT_ONCE)):
            write([_make_row(outcome, top) for outcome in some])
            yield from some


def _list_columns(top: int) -> list[str]:
    ranks = ["", *(f"_{rank}" for rank in range(2, top + 1))]
    labels = [f"{name}{rank}" for rank in ranks for name in ("label", "probability")]
    return ["file", "status", *labels, *_KNOWN, "category", "reason"]


def _make_row(outcome: FileOutcome, top: int) -> Row:
    row: Row = dict.fromkeys(_list_columns(top))
    row.update(file=_as_text(outcome.file), status=outcome.status)
    row.update(known=outcome.known, known_score=outcome.known_score)
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
    local = is_local(fs)
    unfinished = f"{place}.{uuid.uuid4().hex}" if local else place
    try:
        if local and os.path.isdir(place):
            raise IsADirectoryError("it is a folder")
        # An object in a store appears when it is closed, and is discarded if the block fails.
        file = fs.open(unfinished, "wb")
    except Exception as error:  # Each file system raises its own exceptions.
        raise storage_error("write", path, error) from error
    with before_stopping(lambda: os.remove(unfinished) if local else None):
        try:
            yield file
            file.close()
            if local:
                os.replace(unfinished, place)
        except BaseException as error:
            if local:
                file.close()
                os.remove(unfinished)
            elif hasattr(file, "discard"):
                file.discard()
            if isinstance(error, OSError):
                raise storage_error("write", path, error) from error
            raise


@contextlib.contextmanager
def _open_parquet(file: BinaryIO, columns: list[str]) -> Iterator[_Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = {name for name in columns if name.startswith("probability")}
    kinds = {**dict.fromkeys(numbers | {KNOWN_SCORE}, pa.float32()), KNOWN: pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    with pq.ParquetWriter(file, schema) as writer:
        yield lambda rows: writer.write_table(pa.Table.from_pylist(rows, schema))


@contextlib.contextmanager
def _open_csv(file: BinaryIO, columns: list[str]) -> Iterator[_Write]:
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    # Quoted, as some spreadsheets take a semicolon or tab for the end of a cell.
    writer = csv.DictWriter(text, columns, quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    yield lambda rows: writer.writerows(map(_disarm, rows))
    text.detach()


def _disarm(row: Row) -> Row:
    return {k: disarm(value) if isinstance(value, str) else value for k, value in row.items()}


@contextlib.contextmanager
def _open_json(file: BinaryIO, columns: list[str]) -> Iterator[_Write]:
    def write(rows: list[Row]) -> None:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())

    yield write


_WRITERS = {".parquet": _open_parquet, ".csv": _open_csv, ".jsonl": _open_json}
