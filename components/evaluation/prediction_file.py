"""The Parquet file of an evaluation with the models' predictions for each example.

TFMA keeps no predictions, and running the models again for the report would cost as much as the
evaluation. Workers write a part per shard, and the executor joins them. A part is two files: rows
of float32, read one by one when the parts are joined, so that memory does not grow with the images;
and a table of the texts, written last.
"""

import json
import operator
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.contract.artifact_files import (
    list_names,
    make_folders,
    move,
    on_disk,
    open_file,
    remove,
)
from components.contract.model_files import KNOWN_SCORE
from components.evaluation.metrics.predictions import Evaluated, Ints, Predictions, Scores
from components.evaluation.metrics.sampled import SampledPredictions
from components.evaluation.slices import decode_text, encode_text

PREDICTIONS_FILE = "predictions.parquet"

# Folder of the parts in an evaluation, removed when they are joined.
_PARTS = "prediction_parts"
_ROWS, _TEXTS = ".rows", ".parquet"

# Columns of arrays of float32, [classes]; all others but `known_score` are bytes.
_PROBABILITIES = ("probabilities", "baseline_probabilities")
# Keys of the metadata: the label of each column of probabilities, JSON.
_LABELS = (b"labels", b"baseline_labels")
# Probabilities do not compress, and hardly repeat.
_WRITE_OPTIONS = {"compression": "NONE", "use_dictionary": False}

# Rows encoded at once: 4,096 x 1,000 classes are 16 MB.
_ROW_GROUP = 4096
_COPY_BYTES = 2**24

MOST_SCORES = 50_000_000
"""Probabilities of all models that a report holds in memory: 200 MB, of 25,000 images of 1,000
classes that two models judge."""

_MODELS = operator.attrgetter("candidate"), operator.attrgetter("baseline")


@dataclass
class PartWriter:
    """Writes the predictions of a shard, batch by batch."""

    _rows: Any
    _texts: dict[str, list[bytes]] = field(default_factory=dict)
    _known: list[Scores] = field(default_factory=list)

    def add(
        self,
        texts: Mapping[str, Sequence[bytes]],
        probabilities: Sequence[Scores],
        known_scores: Scores | None = None,
    ) -> None:
        """Add a batch.

        Args:
            texts: column → value of each example: `filename`, `label` and the slicings.
            probabilities: of each model, [examples, classes].
            known_scores: of the candidate, [examples], if it has this output.
        """
        for name, values in texts.items():
            self._texts.setdefault(name, []).extend(values)
        self._known += [] if known_scores is None else [known_scores]
        self._rows.write(np.concatenate(probabilities, axis=1, dtype=np.float32).tobytes())

    def table(self) -> Any:
        """Return the texts and the known scores of all batches."""
        columns = {name: pa.array(of, pa.binary()) for name, of in self._texts.items()}
        if self._known:
            columns[KNOWN_SCORE] = pa.array(np.concatenate(self._known), pa.float32())
        return pa.table(columns)


@contextmanager
def open_part(
    evaluation_uri: str, name: str, labels: Sequence[Sequence[bytes]]
) -> Iterator[PartWriter]:
    """Open the part of a shard, which appears whole or not at all.

    If a distributed runner gives the same shard to two workers, the last one wins.
    """
    path = os.path.join(evaluation_uri, _PARTS, name)
    unfinished = f"{path}.{uuid.uuid4().hex}"
    make_folders(os.path.dirname(path))
    with open_file(unfinished, "wb") as rows:
        writer = PartWriter(rows)
        yield writer
    move(unfinished, path + _ROWS)
    names = (json.dumps(list(map(decode_text, of_model))).encode() for of_model in labels)
    facts = dict(zip(_LABELS, names, strict=False))
    buffer = pa.BufferOutputStream()
    pq.write_table(writer.table().replace_schema_metadata(facts), buffer)
    with open_file(unfinished, "wb") as texts:
        texts.write(buffer.getvalue().to_pybytes())
    move(unfinished, path + _TEXTS)


def join_parts(evaluation_uri: str) -> None:
    """Join the parts into one file, sorted by image name, and remove them.

    Its bytes do not depend on how the work was divided. Memory holds the texts and 4,096 rows. Only
    one part is open at a time, as most systems let a process open 1,024 files.
    """
    folder = os.path.join(evaluation_uri, _PARTS)
    with tempfile.TemporaryDirectory(dir=folder if on_disk(folder) else None) as scratch:
        names = [n.removesuffix(_TEXTS) for n in list_names(folder) if n.endswith(_TEXTS)]
        tables = [_open(os.path.join(folder, name + _TEXTS)).read() for name in names]
        joined = os.path.join(scratch, PREDICTIONS_FILE)
        with open(os.path.join(scratch, _ROWS), "w+b") as rows:
            for name in names:
                path = os.path.join(folder, name + _ROWS)
                _append_file(path, rows)
                # The disk needs no space for two copies.
                remove(path)
            rows.flush()
            _write_sorted(joined, pa.concat_tables(tables).combine_chunks(), rows.fileno())
        _publish(joined, os.path.join(evaluation_uri, PREDICTIONS_FILE))
    remove(folder)


def _append_file(path: str, target: Any) -> None:
    with open_file(path, "rb") as file:
        shutil.copyfileobj(file, target, _COPY_BYTES)


def _write_sorted(path: str, texts: Any, rows: int) -> None:
    """Write the table `texts` with its rows, a file descriptor, in the order of the file names."""
    schema, widths = texts.schema, []
    for name, key in zip(_PROBABILITIES, _LABELS, strict=True):
        if key in schema.metadata:
            widths.append(len(json.loads(schema.metadata[key])))
            schema = schema.append(pa.field(name, pa.list_(pa.float32(), widths[-1])))
    order = np.argsort(np.array(texts["filename"].to_pylist(), object), kind="stable")
    with pq.ParquetWriter(path, schema, **_WRITE_OPTIONS) as writer:
        for start in range(0, len(order), _ROW_GROUP):
            group = order[start : start + _ROW_GROUP]
            models = np.split(_read_rows(rows, group, sum(widths)), np.cumsum(widths)[:-1], axis=1)
            scores = [
                pa.FixedSizeListArray.from_arrays(pa.array(of.ravel()), of.shape[1])
                for of in models
            ]
            columns = [*texts.take(pa.array(group)).columns, *scores]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _read_rows(file: int, numbers: Ints, width: int) -> NDArray[np.float32]:
    """Read single rows of `width` from a file, by their numbers."""
    rows = np.empty((len(numbers), width), np.float32)
    size = rows.itemsize * width
    for index, number in enumerate(numbers.tolist()):
        os.preadv(file, [rows[index].data], number * size)
    return rows


def replace_probabilities(
    evaluation_uri: str, models: Sequence[Mapping[str, Scores | None]]
) -> None:
    """Replace probabilities of some images.

    For each model, file name → [classes], or None for an image that cannot judge the model.
    """
    with tempfile.TemporaryDirectory(dir=evaluation_uri if on_disk(evaluation_uri) else None) as at:
        path, writer = os.path.join(at, PREDICTIONS_FILE), None
        for group in _read_groups(evaluation_uri, None):
            names = _texts(group, "filename")
            for column, known in zip(_PROBABILITIES, models, strict=False):
                group = _replace_rows(group, column, names, known)
            writer = writer or pq.ParquetWriter(path, group.schema, **_WRITE_OPTIONS)
            writer.write_table(group)
        if writer:
            writer.close()
            _publish(path, os.path.join(evaluation_uri, PREDICTIONS_FILE))


def _replace_rows(
    table: Any, column: str, names: Sequence[str], known: Mapping[str, Scores | None]
) -> Any:
    index = table.column_names.index(column)
    scores = _read_scores(table, column).copy()
    for number, name in enumerate(names):
        if name in known:
            row = known[name]
            scores[number] = np.nan if row is None else row
    values = pa.FixedSizeListArray.from_arrays(pa.array(scores.ravel()), scores.shape[1])
    return table.set_column(index, table.schema.field(index), values)


def _publish(path: str, target: str) -> None:
    """Move a local file to its place, or upload it."""
    if on_disk(target):
        move(path, target)
        return
    with open_file(target, "wb") as uploaded:
        _append_file(path, uploaded)


def read_predictions(evaluation_uri: str, only: Collection[str] | None = None) -> Evaluated:
    """Read the predictions of an evaluation into memory, which holds no probability twice."""
    most = count_scores(evaluation_uri)[0] if only is None else len(only)
    parts: list[list[Predictions]] = []
    filenames, slices, known, wholes = list[str](), dict[str, list[str]](), list[Any](), list[Any]()
    for batch in map(_parse, _read_groups(evaluation_uri, only)):
        models = [model for model in (batch.candidate, batch.baseline) if model]
        wholes = wholes or [np.empty((most, len(of.labels)), np.float32) for of in models]
        rows = slice(len(filenames), len(filenames) + len(batch.filenames))
        for whole, model in zip(wholes, models, strict=True):
            whole[rows] = model.probabilities
        parts.append([replace(of, probabilities=of.probabilities[:0]) for of in models])
        filenames += batch.filenames
        known.append(batch.known_scores)
        for name, values in batch.slices.items():
            # Millions of images have a few values.
            slices.setdefault(name, []).extend(map(sys.intern, values))
    joined = [
        Predictions(of[0].labels, np.concatenate([p.ids for p in of]), whole[: len(filenames)])
        for of, whole in zip(zip(*parts, strict=True), wholes, strict=True)
    ]
    return Evaluated(
        tuple(filenames),
        {name: tuple(values) for name, values in slices.items()},
        joined[0],
        joined[1] if len(joined) > 1 else None,
        None if known[0] is None else np.concatenate(known),
    )


def read_sampled(evaluation_uri: str, *, most: int = MOST_SCORES) -> Evaluated:
    """Read the predictions of an evaluation, but of no more than `most` probabilities.

    Of more, a random sample of the images keeps its probabilities, and all keep their statistics.
    """
    images, columns = count_scores(evaluation_uri)
    held = most // columns
    if images <= held:
        return read_predictions(evaluation_uri)
    parquet = _open(os.path.join(evaluation_uri, PREDICTIONS_FILE))
    facts = parquet.schema_arrow.metadata
    rows = np.sort(np.random.default_rng(0).choice(images, held, replace=False))
    numbers = (KNOWN_SCORE, *_PROBABILITIES)
    texts: dict[str, list[str]] = {
        name: [] for name in parquet.schema_arrow.names if name not in numbers
    }
    for number in range(parquet.num_row_groups):
        group = parquet.read_row_group(number, columns=list(texts))
        for name, values in texts.items():
            # Millions of images have a few values.
            values += map(sys.intern, _texts(group, name))
    models = [
        SampledPredictions.of(map(model, read_prediction_batches(evaluation_uri)), rows)
        for model, key in zip(_MODELS, _LABELS, strict=True)
        if key in facts
    ]
    slices = {name: tuple(of) for name, of in texts.items() if name not in ("filename", "label")}
    baseline = models[1] if len(models) > 1 else None
    scores = set(parquet.schema_arrow.names) & {KNOWN_SCORE}
    known = _read_known(parquet.read(list(scores)))
    return Evaluated(tuple(texts["filename"]), slices, models[0], baseline, known)


def count_scores(evaluation_uri: str) -> tuple[int, int]:
    """Return the number of images of an evaluation, and of probabilities of each."""
    parquet = _open(os.path.join(evaluation_uri, PREDICTIONS_FILE))
    facts = parquet.schema_arrow.metadata
    columns = sum(len(json.loads(facts[key])) for key in _LABELS if key in facts)
    return parquet.metadata.num_rows, columns


def read_prediction_batches(evaluation_uri: str) -> Iterator[Evaluated]:
    """Yield all predictions of an evaluation in batches."""
    return map(_parse, _read_groups(evaluation_uri, None))


def _read_groups(evaluation_uri: str, only: Collection[str] | None) -> Iterator[Any]:
    """Yield the row groups of the file, with the images named in `only` if it is not None."""
    parquet = _open(os.path.join(evaluation_uri, PREDICTIONS_FILE))
    groups = map(parquet.read_row_group, range(parquet.num_row_groups))
    if only is None:
        return groups
    names = pa.array(map(encode_text, only), pa.binary())
    return (group.filter(pc.is_in(group["filename"], value_set=names)) for group in groups)


def _open(path: str) -> Any:
    """Open a Parquet file by row groups; files in object stores are copied to the disk."""
    if on_disk(path):
        # pyarrow's own error has no `filename`.
        os.stat(path)
        return pq.ParquetFile(path)
    local = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the Parquet file
    _append_file(path, local)
    local.seek(0)
    return pq.ParquetFile(local)


def _parse(table: Any) -> Evaluated:
    labels, texts = table.schema.metadata, _texts(table, "label")
    models = [
        _predictions(table, column, labels[key], texts)
        for column, key in zip(_PROBABILITIES, _LABELS, strict=True)
        if key in labels
    ]
    others = ("filename", "label", KNOWN_SCORE, *_PROBABILITIES)
    slices = {name: _texts(table, name) for name in table.column_names if name not in others}
    baseline = models[1] if len(models) > 1 else None
    return Evaluated(_texts(table, "filename"), slices, models[0], baseline, _read_known(table))


def _read_known(table: Any) -> NDArray[np.float32] | None:
    """Return the column of known scores, [rows]; None if the candidate has no such output."""
    return table[KNOWN_SCORE].to_numpy() if KNOWN_SCORE in table.column_names else None


def _texts(table: Any, name: str) -> tuple[str, ...]:
    return tuple(decode_text(value) for value in table[name].to_pylist())


def _predictions(table: Any, column: str, labels: bytes, texts: Sequence[str]) -> Predictions:
    names = tuple(json.loads(labels))
    scores = _read_scores(table, column)
    columns = {label: number for number, label in enumerate(names)}
    ids: Ints = np.array([columns.get(text, -1) for text in texts], np.int64)
    unjudged = np.isnan(scores).all(axis=1) & (column == _PROBABILITIES[1])
    if unjudged.any():
        # As of an unknown label: the model in use was trained on these images.
        ids, scores = np.where(unjudged, -1, ids), np.nan_to_num(scores, nan=1 / len(names))
    return Predictions(names, ids, scores)


def _read_scores(table: Any, column: str) -> NDArray[np.float32]:
    """Return a column of probabilities, [rows, classes]."""
    chunks = [chunk.flatten().to_numpy() for chunk in table[column].chunks]
    # A table without rows may have no chunks.
    flat = np.concatenate([np.empty(0, np.float32), *chunks])
    width = table.schema.field(column).type.list_size
    scores: NDArray[np.float32] = flat.reshape(table.num_rows, width)
    return scores
