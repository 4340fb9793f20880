"""Reads the Parquet file of an evaluation with the models' predictions for each example.

TFMA keeps no predictions, and running the models again for the report would cost as much as the
evaluation. `prediction_parts` writes the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from components.evaluation.metrics.predictions import Evaluated, Ints, Predictions
from components.evaluation.slices import SLICINGS, decode_text, encode_text
from components.storage.artifact_files import on_disk, open_file

PREDICTIONS_FILE = "predictions.parquet"

PROBABILITIES, BASELINE_PROBABILITIES = "probabilities", "baseline_probabilities"
"""Columns of arrays of float32, [classes]; all other columns are bytes."""

LABELS, BASELINE_LABELS = b"labels", b"baseline_labels"
"""Keys of the metadata: the label of each column of probabilities, JSON."""

WRITE_OPTIONS = {"compression": "NONE", "use_dictionary": False}
"""Probabilities do not compress, and hardly repeat."""


def read_predictions(evaluation_uri: str, only: Collection[str] | None = None) -> Evaluated:
    """Read the predictions of an evaluation into memory."""
    return _parse(pa.concat_tables(list(_read_groups(evaluation_uri, only))))


def read_prediction_batches(evaluation_uri: str) -> Iterator[Evaluated]:
    """Yield all predictions of an evaluation in batches."""
    return map(_parse, _read_groups(evaluation_uri, None))


def _read_groups(evaluation_uri: str, only: Collection[str] | None) -> Iterator[Any]:
    """Yield the row groups of the file, with the images named in `only` if it is not None."""
    parquet = pq.ParquetFile(_source(os.path.join(evaluation_uri, PREDICTIONS_FILE)))
    groups = map(parquet.read_row_group, range(parquet.num_row_groups))
    if only is None:
        return groups
    names = pa.array(map(encode_text, only), pa.binary())
    return (group.filter(pc.is_in(group["filename"], value_set=names)) for group in groups)


def _source(path: str) -> Any:
    """Return what pyarrow can read by row groups; files in object stores are read whole."""
    if on_disk(path):
        # pyarrow's own error has no `filename`.
        os.stat(path)
        return path
    with open_file(path, "rb") as file:
        return pa.BufferReader(file.read())


def _parse(table: Any) -> Evaluated:
    facts = table.schema.metadata
    texts = _texts(table, "label")
    baseline = None
    if BASELINE_LABELS in facts:
        baseline = _predictions(table, BASELINE_PROBABILITIES, facts[BASELINE_LABELS], texts)
    return Evaluated(
        filenames=_texts(table, "filename"),
        slices={name: _texts(table, name) for name in SLICINGS},
        candidate=_predictions(table, PROBABILITIES, facts[LABELS], texts),
        baseline=baseline,
    )


def _texts(table: Any, name: str) -> tuple[str, ...]:
    return tuple(decode_text(value) for value in table[name].to_pylist())


def _predictions(table: Any, column: str, labels: bytes, texts: Sequence[str]) -> Predictions:
    names = tuple(json.loads(labels))
    flat = np.concatenate([chunk.flatten().to_numpy() for chunk in table[column].chunks])
    columns = {label: number for number, label in enumerate(names)}
    ids: Ints = np.array([columns.get(text, -1) for text in texts], np.int64)
    return Predictions(names, ids, flat.reshape(len(texts), len(names)))
