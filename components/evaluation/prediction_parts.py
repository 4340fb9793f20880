"""Writes the prediction file in parts: workers write one per shard, the executor joins them.

A part is two files: rows of float32, read one by one when the parts are joined, so that memory
does not grow with the images; and a table of the texts, written last.
"""

from __future__ import annotations

import json
import os
import shutil
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

    Its bytes do not depend on how the work was divided. Memory holds the texts and 4,096 rows. Only
    one part is open at a time, as most systems let a process open 1,024 files.
    """
    folder = os.path.join(evaluation_uri, FOLDER)
    with tempfile.TemporaryDirectory(dir=folder if on_disk(folder) else None) as scratch:
        names = [n.removesuffix(_TEXTS) for n in list_names(folder) if n.endswith(_TEXTS)]
        tables = [_read_table(os.path.join(folder, name + _TEXTS)) for name in names]
        joined = os.path.join(scratch, PREDICTIONS_FILE)
        with open(os.path.join(scratch, _ROWS), "w+b") as rows:
            for name in names:
                path = os.path.join(folder, name + _ROWS)
                _append_file(path, rows)
                # The disk needs no space for two copies.
                remove(path)
            rows.flush()
            _write_sorted(joined, pa.concat_tables(tables).combine_chunks(), rows.fileno())
        target = os.path.join(evaluation_uri, PREDICTIONS_FILE)
        if on_disk(target):
            move(joined, target)
        else:
            with open_file(target, "wb") as uploaded:
                _append_file(joined, uploaded)
    remove(folder)


def _read_table(path: str) -> Any:
    with open_file(path, "rb") as file:
        return pq.read_table(pa.BufferReader(file.read()))


def _append_file(path: str, target: Any) -> None:
    with open_file(path, "rb") as file:
        shutil.copyfileobj(file, target, _COPY_BYTES)


def _write_sorted(path: str, texts: Any, rows: int) -> None:
    """Write the table `texts` with its rows, a file descriptor, in the order of the file names."""
    facts = texts.schema.metadata
    widths = [len(json.loads(facts[key])) for key in (LABELS, BASELINE_LABELS) if key in facts]
    order = np.argsort(np.array(texts["filename"].to_pylist(), object), kind="stable")
    with ExitStack() as stack:
        writer: Any = None
        for start in range(0, len(order), _ROW_GROUP):
            group = order[start : start + _ROW_GROUP]
            found = _read_rows(rows, group, sum(widths))
            table = _append(texts.take(pa.array(group)), found, widths)
            writer = writer or stack.enter_context(
                pq.ParquetWriter(path, table.schema, **WRITE_OPTIONS)
            )
            writer.write_table(table)


def _read_rows(file: int, numbers: Ints, width: int) -> NDArray[np.float32]:
    """Read single rows of `width` from a file, by their numbers."""
    rows = np.empty((len(numbers), width), np.float32)
    size = rows.itemsize * width
    for index, number in enumerate(numbers.tolist()):
        os.preadv(file, [rows[index].data], number * size)
    return rows


def _append(texts: Any, rows: NDArray[np.float32], widths: Sequence[int]) -> Any:
    """Append one column of probabilities per model."""
    names = (PROBABILITIES, BASELINE_PROBABILITIES)
    parts = np.split(rows, np.cumsum(widths)[:-1], axis=1)
    for name, part, width in zip(names, parts, widths, strict=False):
        flat = pa.array(np.ascontiguousarray(part).ravel())
        texts = texts.append_column(name, pa.FixedSizeListArray.from_arrays(flat, width))
    return texts
