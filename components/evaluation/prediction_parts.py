"""Writes the prediction file in parts: workers write one per shard, the executor joins them.

A part is two files: rows of float32, read one by one when the parts are joined, so that memory
does not grow with the images; and a table of the texts, written last.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.evaluation.metrics.predictions import Ints, Scores
from components.evaluation.prediction_file import (
    BASELINE_LABELS,
    BASELINE_PROBABILITIES,
    LABELS,
    PREDICTIONS_FILE,
    PROBABILITIES,
    WRITE_OPTIONS,
)
from components.evaluation.slices import decode_text
from components.storage.artifact_files import (
    list_names,
    make_folders,
    move,
    on_disk,
    open_file,
    remove,
)

FOLDER = "prediction_parts"
"""Folder of the parts in an evaluation, removed when they are joined."""

_ROWS, _TEXTS = ".rows", ".parquet"

# Rows encoded at once: 4,096 x 1,000 classes are 16 MB.
_ROW_GROUP = 4096
_COPY_BYTES = 2**24


@dataclass
class PartWriter:
    """Writes the predictions of a shard, batch by batch."""

    _rows: Any
    _texts: dict[str, list[bytes]] = field(default_factory=dict)

    def add(self, texts: Mapping[str, Sequence[bytes]], probabilities: Sequence[Scores]) -> None:
        """Add a batch.

        Args:
            texts: column → value of each example: `filename`, `label` and the slicings.
            probabilities: of each model, [examples, classes].
        """
        for name, values in texts.items():
            self._texts.setdefault(name, []).extend(values)
        self._rows.write(np.concatenate(probabilities, axis=1, dtype=np.float32).tobytes())

    def table(self) -> Any:
        """Return the texts of all batches."""
        return pa.table({name: pa.array(of, pa.binary()) for name, of in self._texts.items()})


@contextmanager
def open_part(
    evaluation_uri: str, name: str, labels: Sequence[Sequence[bytes]]
) -> Iterator[PartWriter]:
    """Open the part of a shard, which appears whole or not at all.

    If a distributed runner gives the same shard to two workers, the last one wins.
    """
    path = os.path.join(evaluation_uri, FOLDER, name)
    unfinished = f"{path}.{uuid.uuid4().hex}"
    make_folders(os.path.dirname(path))
    with open_file(unfinished, "wb") as rows:
        writer = PartWriter(rows)
        yield writer
    move(unfinished, path + _ROWS)
    facts = zip((LABELS, BASELINE_LABELS), map(_dump, labels), strict=False)
    buffer = pa.BufferOutputStream()
    pq.write_table(writer.table().replace_schema_metadata(dict(facts)), buffer)
    with open_file(unfinished, "wb") as texts:
        texts.write(buffer.getvalue().to_pybytes())
    move(unfinished, path + _TEXTS)


def _dump(labels: Iterable[bytes]) -> bytes:
    return json.dumps([decode_text(label) for label in labels]).encode()


def join_parts(evaluation_uri: str) -> None:
    """Join the parts into one file, sorted by image name, and remove them.

    Its bytes do not depend on how the work was divided. Memory holds the texts and 4,096 rows;
    parts in a bucket are copied to this machine first.
    """
    folder = os.path.join(evaluation_uri, FOLDER)
    with tempfile.TemporaryDirectory(dir=folder if on_disk(folder) else None) as scratch:
        joined = os.path.join(scratch, PREDICTIONS_FILE)
        with ExitStack() as stack:
            names = [n.removesuffix(_TEXTS) for n in list_names(folder) if n.endswith(_TEXTS)]
            tables = [_read_table(os.path.join(folder, name + _TEXTS)) for name in names]
            paths = [_fetch(os.path.join(folder, name + _ROWS), scratch) for name in names]
            # Closed by the stack.
            files = [stack.enter_context(open(path, "rb", buffering=0)) for path in paths]
            _write_sorted(joined, tables, [file.fileno() for file in files])
        target = os.path.join(evaluation_uri, PREDICTIONS_FILE)
        if on_disk(target):
            move(joined, target)
        else:
            _copy(joined, target)
    remove(folder)


def _read_table(path: str) -> Any:
    with open_file(path, "rb") as file:
        return pq.read_table(pa.BufferReader(file.read()))


def _fetch(path: str, scratch: str) -> str:
    """Return a local path with the same content."""
    if on_disk(path):
        return path
    local = os.path.join(scratch, os.path.basename(path))
    _copy(path, local)
    return local


def _copy(source: str, target: str) -> None:
    with open_file(source, "rb") as old, open_file(target, "wb") as new:
        while content := old.read(_COPY_BYTES):
            new.write(content)


def _write_sorted(path: str, tables: Sequence[Any], files: Sequence[int]) -> None:
    """Write all rows in the order of their file names; `files` are file descriptors of the rows."""
    lengths = [len(table) for table in tables]
    of_part = np.repeat(np.arange(len(tables)), lengths)
    of_row = np.concatenate([np.arange(length) for length in lengths])
    texts = pa.concat_tables(tables).combine_chunks()
    names = np.array(texts["filename"].to_pylist(), object)
    order = np.argsort(names, kind="stable")
    texts, of_part, of_row = texts.take(pa.array(order)), of_part[order], of_row[order]
    facts = texts.schema.metadata
    widths = [len(json.loads(facts[key])) for key in (LABELS, BASELINE_LABELS) if key in facts]
    with ExitStack() as stack:
        writer: Any = None
        for start in range(0, len(order), _ROW_GROUP):
            group = slice(start, start + _ROW_GROUP)
            rows = _read_rows(files, of_part[group], of_row[group], sum(widths))
            table = _append(texts[group].combine_chunks(), rows, widths)
            writer = writer or stack.enter_context(
                pq.ParquetWriter(path, table.schema, **WRITE_OPTIONS)
            )
            writer.write_table(table)


def _read_rows(
    files: Sequence[int], of_part: Ints, of_row: Ints, width: int
) -> NDArray[np.float32]:
    """Read single rows from the parts."""
    rows = np.empty((len(of_row), width), np.float32)
    size = rows.itemsize * width
    for index, (part, row) in enumerate(zip(of_part.tolist(), of_row.tolist(), strict=True)):
        os.preadv(files[part], [rows[index].data], row * size)
    return rows


def _append(texts: Any, rows: NDArray[np.float32], widths: Sequence[int]) -> Any:
    """Append one column of probabilities per model."""
    names = (PROBABILITIES, BASELINE_PROBABILITIES)
    parts = np.split(rows, np.cumsum(widths)[:-1], axis=1)
    for name, part, width in zip(names, parts, widths, strict=False):
        flat = pa.array(np.ascontiguousarray(part).ravel())
        texts = texts.append_column(name, pa.FixedSizeListArray.from_arrays(flat, width))
    return texts
