"""Reads the Parquet file of an evaluation, with the models' predictions for each example."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.contract.artifact_files import COPY_BYTES, on_disk, open_file
from components.contract.example import decode_text, encode_text
from components.contract.model_files import KNOWN_SCORE
from components.metrics.predictions import Evaluated, Ints, Predictions, PredictionStats

PREDICTIONS_FILE = "predictions.parquet"

PROBABILITIES = ("probabilities", "baseline_probabilities")
"""Columns of arrays of float32, [classes]; all others but `known_score` are bytes."""

LABEL_KEYS = (b"labels", b"baseline_labels")
"""Keys of the metadata: the label of each column of probabilities, JSON."""

MOST_SCORES = 50_000_000
"""Probabilities of all models that a report holds in memory: 200 MB, of 25,000 images of 1,000
classes that two models judge."""


def read_predictions(evaluation_uri: str, only: Collection[str] | None = None) -> Evaluated:
    """Read the predictions of an evaluation into memory, which holds no probability twice."""
    most = count_scores(evaluation_uri)[0] if only is None else len(only)
    return _join(read_groups(evaluation_uri, only), np.arange(most), sampled=False)


def read_sampled(evaluation_uri: str, *, most: int = MOST_SCORES) -> Evaluated:
    """Read the predictions of an evaluation, but of no more than `most` probabilities.

    Of more, a random sample of the images keeps its probabilities, and all keep their statistics.
    """
    images, columns = count_scores(evaluation_uri)
    held = most // columns
    if images <= held:
        return read_predictions(evaluation_uri)
    rows = np.sort(np.random.default_rng(0).choice(images, held, replace=False))
    return _join(read_groups(evaluation_uri, None), rows, sampled=True)


def _join(groups: Iterable[Any], rows: Ints, *, sampled: bool) -> Evaluated:
    """Join row groups, with the probabilities of `rows`, ascending, and statistics of all."""
    filenames, slices, known = list[str](), dict[str, list[str]](), list[Any]()
    kept: list[NDArray[np.float32]] = []
    parts: list[list[tuple[Ints, PredictionStats | None]]] = []
    for batch in map(_parse, groups):
        models = [model for model in (batch.candidate, batch.baseline) if model]
        kept = kept or [np.empty((len(rows), len(model.labels)), np.float32) for model in models]
        start = len(filenames)
        first, last = np.searchsorted(rows, [start, start + len(batch.filenames)])
        for whole, model in zip(kept, models, strict=True):
            whole[first:last] = model.probabilities[rows[first:last] - start]
        parts.append([(model.ids, model.stats if sampled else None) for model in models])
        filenames += batch.filenames
        known.append(batch.known_scores)
        for name, values in batch.slices.items():
            # Millions of images have a few values.
            slices.setdefault(name, []).extend(map(sys.intern, values))
    labels = [model.labels for model in models]
    held = rows[: np.searchsorted(rows, len(filenames))]
    joined = [
        _join_model(*of_model, held)
        for of_model in zip(labels, zip(*parts, strict=True), kept, strict=True)
    ]
    return Evaluated(
        tuple(filenames),
        {name: tuple(values) for name, values in slices.items()},
        joined[0],
        joined[1] if len(joined) > 1 else None,
        None if known[0] is None else np.concatenate(known),
    )


def _join_model(
    labels: tuple[str, ...],
    parts: Sequence[tuple[Ints, PredictionStats | None]],
    kept: NDArray[np.float32],
    rows: Ints,
) -> Predictions:
    """Join true classes and statistics of batches; `kept` has the probabilities of `rows`."""
    ids, probabilities = np.concatenate([part for part, _ in parts]), kept[: len(rows)]
    stats = [of_part for _, of_part in parts if of_part]
    if not stats:
        return Predictions(labels, ids, probabilities)
    return Predictions(labels, ids, probabilities, rows, PredictionStats.concatenate(stats))


def count_scores(evaluation_uri: str) -> tuple[int, int]:
    """Return the number of images of an evaluation, and of probabilities of each."""
    parquet = _open_table(os.path.join(evaluation_uri, PREDICTIONS_FILE))
    facts = parquet.schema_arrow.metadata
    columns = sum(len(json.loads(facts[key])) for key in LABEL_KEYS if key in facts)
    return parquet.metadata.num_rows, columns


def read_prediction_batches(evaluation_uri: str) -> Iterator[Evaluated]:
    """Yield all predictions of an evaluation in batches."""
    return map(_parse, read_groups(evaluation_uri, None))


def read_groups(evaluation_uri: str, only: Collection[str] | None) -> Iterator[Any]:
    """Yield the row groups of the file, with the images named in `only` if it is not None."""
    groups = read_row_groups(os.path.join(evaluation_uri, PREDICTIONS_FILE))
    if only is None:
        return groups
    names = pa.array(map(encode_text, only), pa.binary())
    return (group.filter(pc.is_in(group["filename"], value_set=names)) for group in groups)


def read_row_groups(path: str) -> Iterator[Any]:
    """Yield the row groups of a Parquet file."""
    parquet = _open_table(path)
    return map(parquet.read_row_group, range(parquet.num_row_groups))


def _open_table(path: str) -> Any:
    """Open a Parquet file; one in an object store is copied to the disk."""
    if on_disk(path):
        # pyarrow's own error has no `filename`.
        os.stat(path)
        return pq.ParquetFile(path)
    local = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the Parquet file
    with open_file(path, "rb") as file:
        shutil.copyfileobj(file, local, COPY_BYTES)
    local.seek(0)
    return pq.ParquetFile(local)


def _parse(table: Any) -> Evaluated:
    labels, texts = table.schema.metadata, read_texts(table, "label")
    models = [
        _predictions(table, column, labels[key], texts)
        for column, key in zip(PROBABILITIES, LABEL_KEYS, strict=True)
        if key in labels
    ]
    others = ("filename", "label", KNOWN_SCORE, *PROBABILITIES)
    slices = {name: read_texts(table, name) for name in table.column_names if name not in others}
    baseline = models[1] if len(models) > 1 else None
    known = table[KNOWN_SCORE].to_numpy() if KNOWN_SCORE in table.column_names else None
    return Evaluated(read_texts(table, "filename"), slices, models[0], baseline, known)


def read_texts(table: Any, name: str) -> tuple[str, ...]:
    """Return a column of texts, [rows]."""
    return tuple(decode_text(value) for value in table[name].to_pylist())


def _predictions(table: Any, column: str, labels: bytes, texts: Sequence[str]) -> Predictions:
    names = tuple(json.loads(labels))
    scores = read_scores(table, column)
    columns = {label: number for number, label in enumerate(names)}
    ids: Ints = np.array([columns.get(text, -1) for text in texts], np.int64)
    unjudged = np.isnan(scores).all(axis=1) & (column == PROBABILITIES[1])
    if unjudged.any():
        # As of an unknown label: the current model was trained on these images.
        ids, scores = np.where(unjudged, -1, ids), np.nan_to_num(scores, nan=1 / len(names))
    return Predictions(names, ids, scores)


def read_scores(table: Any, column: str) -> NDArray[np.float32]:
    """Return a column of probabilities, [rows, classes]."""
    chunks = [chunk.flatten().to_numpy() for chunk in table[column].chunks]
    # A table without rows may have no chunks.
    flat = np.concatenate([np.empty(0, np.float32), *chunks])
    width = table.schema.field(column).type.list_size
    scores: NDArray[np.float32] = flat.reshape(table.num_rows, width)
    return scores
