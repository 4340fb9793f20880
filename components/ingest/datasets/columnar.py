"""Parquet and Arrow files with a column of images, as Hugging Face datasets keep them."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_ARROW_FILE = b"ARROW1"
_BYTES = "bytes"

_Batches = Iterator[tuple[int, int, Any, Sequence[int | None]]]
"""Number of a row group or batch, that of the first row in it, rows, and sizes of their images."""


def peek(shard: Shard) -> Iterator[dict[str, Any]]:
    """Yield the columns of each row; an image is its bytes, whatever holds them."""
    with _opened(shard, None) as batches:
        for _, _, batch, _ in batches:
            names = batch.schema.names
            if doubled := [name for name in names if names.count(name) > 1]:
                raise DamagedShardError(f"it has the column {doubled[0]} twice")
            yield from ({name: _flat(value) for name, value in row.items()} for row in _rows(batch))


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    return (batch.slice(row, 1).to_pylist()[0] for row in range(batch.num_rows))


def _flat(value: Any) -> Any:
    """Return the bytes of an image; without any, its path."""
    if isinstance(value, dict) and _BYTES in value:
        return value[_BYTES] if value[_BYTES] is not None else value.get("path")
    return value


def scan(shard: Shard, image: str, names: Sequence[str]) -> Iterator[Record]:
    """Yield the rows of a shard."""
    classes: Mapping[str, Sequence[str]] | None = None
    with _opened(shard, names, sized=image) as batches:
        for group, first, batch, sizes in batches:
            classes = read_class_labels(batch.schema) if classes is None else classes
            known = [name for name in names if name in batch.schema.names]
            columns = {name: batch.column(name).to_pylist() for name in known}
            for row, size in enumerate(sizes):
                found = {name: values[row] for name, values in columns.items()}
                yield Record(f"{group} {first + row}", size, found, class_names=classes)


def read(shard: Shard, image: str, places: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the image at each row group or batch, and row."""
    wanted = [tuple(map(int, place.split())) for place in places]
    with _opened(shard, [image], {group for group, _ in wanted}) as batches:
        unread = iter(wanted)
        group, row = next(unread, (-1, -1))
        for number, first, batch, _ in batches:
            pixels = _pixels(batch, image)
            while group == number and row < first + len(pixels):
                yield pixels[row - first].as_py() or b""
                group, row = next(unread, (-1, -1))
            if group < 0:
                return


def class_names(shard: Shard) -> Mapping[str, Sequence[str]]:
    """Return column → names of its integers, as `datasets.ClassLabel` keeps them."""
    with _opened(shard, [], set()) as batches:
        return read_class_labels(next(batches)[2].schema)


def _pixels(batch: Any, image: str) -> Any:
    """Return the encoded images of a batch as an array of bytes."""
    column = batch.column(image)
    index = getattr(column.type, "get_field_index", lambda _: -1)(_BYTES)
    return column.flatten()[index] if index >= 0 else column


@contextlib.contextmanager
def _opened(
    shard: Shard,
    names: Sequence[str] | None,
    groups: set[int] | None = None,
    sized: str | None = None,
) -> Iterator[_Batches]:
    """Open a shard.

    Args:
        shard: the file.
        names: columns to read; None: all.
        groups: row groups or batches to read; of an empty set, yield the schema alone.
        sized: column of images whose sizes are wanted. Parquet has their mean without reading them.

    Raises:
        DamagedShardError: the file is damaged, encrypted or of another format.
    """
    with shard.open() as stream:
        choose_allocator()
        try:
            import pyarrow

            # Keeps a column of Python objects from running code: CVE-2023-47248.
            import pyarrow_hotfix  # noqa: F401

            path = f"{shard.folder}/{shard.file.path}"
            # A mapped file that is cut meanwhile would end the process.
            source = pyarrow.OSFile(path) if on_disk(path) else pyarrow.PythonFile(stream, "r")
            is_parquet = path.lower().endswith(".parquet")
            yield (_read_parquet if is_parquet else _read_arrow)(source, names, groups, sized)
        except Exception as error:
            raise explain_damage(error) from error


def _read_parquet(
    source: Any, names: Sequence[str] | None, groups: set[int] | None, sized: str | None
) -> _Batches:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    # Without threads: given a broken file, they outlive the error and crash the process later.
    file = ParquetFile(source, pre_buffer=False, buffer_size=_READ_BYTES)
    schema = file.schema_arrow
    if groups is not None and not groups:
        yield 0, 0, pyarrow.RecordBatch.from_pylist([], schema=schema), ()
    leaves = None if names is None else [_leaf(schema, n) for n in names if n in schema.names]
    for group in range(file.num_row_groups):
        if groups is not None and group not in groups:
            continue
        facts, first = file.metadata.row_group(group), 0
        size = facts.total_byte_size // max(facts.num_rows, 1) + 1
        rows = min(max(_BATCH_BYTES // size, 1), _MOST_ROWS)
        if sized is None:
            for batch in file.iter_batches(rows, [group], leaves, use_threads=False):
                yield group, first, batch, ()
                first += batch.num_rows
            continue
        columns = file.read_row_group(group, leaves, use_threads=False)
        yield group, 0, columns, [_mean_size(facts, sized)] * facts.num_rows


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


def _read_arrow(
    source: Any, _: Sequence[str] | None, groups: set[int] | None, sized: str | None
) -> _Batches:
    import pyarrow.compute as pc
    from pyarrow import RecordBatch, ipc

    start = source.read(len(_ARROW_FILE))
    source.seek(0)
    reader = (ipc.open_file if start == _ARROW_FILE else ipc.open_stream)(source)
    if groups is not None and not groups:
        yield 0, 0, RecordBatch.from_pylist([], schema=reader.schema), ()
    if start == _ARROW_FILE:
        numbers = range(reader.num_record_batches) if groups is None else sorted(groups)
        batches: Iterable[Any] = ((number, reader.get_batch(number)) for number in numbers)
    else:
        batches = enumerate(reader)
    for number, batch in batches:
        sizes: Sequence[int | None] = [None] * batch.num_rows
        if sized and sized in batch.schema.names:
            sizes = pc.binary_length(_pixels(batch, sized)).to_pylist()
        yield number, 0, batch, sizes


FORMAT = Format("Parquet or Arrow files", peek, scan, read, class_names)
