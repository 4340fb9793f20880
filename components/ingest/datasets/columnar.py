"""Parquet files with a column of images, as Hugging Face datasets keep them."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.contract.artifact_files import on_disk
from components.host.machine import choose_allocator
from components.ingest.datasets.record import (
    DamagedShardError,
    Format,
    Record,
    Shard,
    explain_damage,
)
from components.ingest.source.manifest import read_class_labels

# Of one batch, unless a single row is larger.
_BATCH_BYTES = 2**20
_MOST_ROWS = 1024
_READ_BYTES = 2**20
_BYTES = "bytes"


def peek(shard: Shard) -> Iterator[dict[str, Any]]:
    """Yield the columns of each row; an image is its bytes, whatever holds them."""
    with _opened(shard) as file:
        names = file.schema_arrow.names
        if doubled := [name for name in names if names.count(name) > 1]:
            raise DamagedShardError(f"it has the column {doubled[0]} twice")
        for group in range(file.num_row_groups):
            for batch in _batches(file, group, None):
                for row in range(batch.num_rows):
                    [values] = batch.slice(row, 1).to_pylist()
                    yield {name: _flat(value) for name, value in values.items()}


def _flat(value: Any) -> Any:
    """Return the bytes of an image; without any, its path."""
    if isinstance(value, dict) and _BYTES in value:
        return value[_BYTES] if value[_BYTES] is not None else value.get("path")
    return value


def scan(shard: Shard, image: str, names: Sequence[str]) -> Iterator[Record]:
    """Yield the rows of a shard."""
    with _opened(shard) as file:
        schema = file.schema_arrow
        known = [name for name in names if name in schema.names]
        for group in range(file.num_row_groups):
            facts = file.metadata.row_group(group)
            # Their mean, which is known without reading the images.
            size = _mean_size(facts, image)
            leaves = [_leaf(schema, name) for name in known]
            table = file.read_row_group(group, leaves, use_threads=False)
            columns = {name: table.column(name).to_pylist() for name in known}
            for row in range(facts.num_rows):
                fields = {name: values[row] for name, values in columns.items()}
                yield Record(f"{group} {row}", size, fields)


def read(shard: Shard, image: str, places: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the image at each row group and row."""
    wanted = [tuple(map(int, place.split())) for place in places]
    with _opened(shard) as file:
        leaf = [_leaf(file.schema_arrow, image)]
        for group, rows in itertools.groupby(wanted, key=lambda place: place[0]):
            batches, first = _batches(file, group, leaf), 0
            pixels: Any = ()
            for _, row in rows:
                while row >= first + len(pixels):
                    if (batch := next(batches, None)) is None:
                        return
                    first, pixels = first + len(pixels), _pixels(batch, image)
                yield pixels[row - first].as_py() or b""


def class_names(shard: Shard) -> Mapping[str, Sequence[str]]:
    """Return column → names of its integers, as `datasets.ClassLabel` keeps them."""
    with _opened(shard) as file:
        return read_class_labels(file.schema_arrow)


@contextlib.contextmanager
def _opened(shard: Shard) -> Iterator[Any]:
    """Open a shard as `pyarrow.parquet.ParquetFile`.

    Raises:
        DamagedShardError: the file is damaged, encrypted or of another format.
    """
    with shard.open() as stream:
        choose_allocator()
        try:
            import pyarrow

            # Keeps a column of Python objects from running code: CVE-2023-47248.
            import pyarrow_hotfix  # noqa: F401
            from pyarrow.parquet import ParquetFile

            path = f"{shard.folder}/{shard.file.path}"
            # A mapped file that is cut meanwhile would end the process.
            source = pyarrow.OSFile(path) if on_disk(path) else pyarrow.PythonFile(stream, "r")
            # Without threads: given a broken file, they outlive the error and crash the process
            # later.
            yield ParquetFile(source, pre_buffer=False, buffer_size=_READ_BYTES)
        except Exception as error:
            raise explain_damage(error) from error


def _batches(file: Any, group: int, leaves: Sequence[str] | None) -> Iterator[Any]:
    """Read columns, or all, of a row group in batches of limited size."""
    facts = file.metadata.row_group(group)
    size = facts.total_byte_size // max(facts.num_rows, 1) + 1
    rows = min(max(_BATCH_BYTES // size, 1), _MOST_ROWS)
    batches: Iterator[Any] = file.iter_batches(rows, [group], leaves, use_threads=False)
    return batches


def _pixels(batch: Any, image: str) -> Any:
    """Return the encoded images of a batch as an array of bytes."""
    column = batch.column(image)
    index = getattr(column.type, "get_field_index", lambda _: -1)(_BYTES)
    return column.flatten()[index] if index >= 0 else column


def _mean_size(group: Any, image: str) -> int | None:
    """Return the mean size of the images of a row group, bytes; None if it has none."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema in (image, f"{image}.{_BYTES}"):
            return int(column.total_uncompressed_size // max(group.num_rows, 1))
    return None


def _leaf(schema: Any, name: str) -> str:
    """Return the column to read: of a struct with an image, its bytes alone."""
    kind = schema.field(name).type
    index = getattr(kind, "get_field_index", lambda _: -1)(_BYTES)
    return f"{name}.{_BYTES}" if index >= 0 else name


FORMAT = Format("Parquet files", peek, scan, read, class_names)
