"""The file of an evaluation that says what the models answered to each example, a Parquet table.

Workers write parts of it; the executor puts them together, sorted, so that its bytes do not depend
on how the work was divided. TFMA itself keeps no answers, and a second run of the models for the
report would cost as much as the evaluation.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.evaluation.predictions import Evaluated, Ints, Predictions
from components.evaluation.slices import SLICINGS, decode_text

PREDICTIONS_FILE = "predictions.parquet"
_PARTS = "prediction_parts"

# Rows that are encoded at once: 4,096 x 1,000 classes are 16 MB.
_ROW_GROUP = 4096
_LABELS, _BASELINE = b"labels", b"baseline_labels"


class Row(NamedTuple):
    """What is kept of one example."""

    filename: bytes
    label: bytes
    slices: dict[str, str]
    probabilities: NDArray[np.float32]
    """[classes]."""
    baseline: NDArray[np.float32] | None
    """[classes of the model in use]."""


def write_part(evaluation_uri: str, rows: Sequence[Row]) -> None:
    """Write the rows that a worker has, in a file of its own."""
    columns: dict[str, Any] = {
        "filename": pa.array([row.filename for row in rows], pa.binary()),
        "label": pa.array([row.label for row in rows], pa.binary()),
    }
    for name in SLICINGS:
        values = [row.slices[name].encode("utf-8", "surrogateescape") for row in rows]
        columns[name] = pa.array(values, pa.binary())
    columns["probabilities"] = _matrix([row.probabilities for row in rows])
    answers = [row.baseline for row in rows if row.baseline is not None]
    if answers:
        columns["baseline_probabilities"] = _matrix(answers)
    _write(os.path.join(evaluation_uri, _PARTS, f"{uuid.uuid4().hex}.parquet"), pa.table(columns))


def _matrix(rows: Sequence[NDArray[np.float32]]) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(rows)), len(rows[0]))


def _write(path: str, table: Any) -> None:
    import tensorflow as tf

    # TensorFlow's files are none to Arrow.
    buffer = pa.BufferOutputStream()
    # Probabilities do not compress, and hardly any repeats.
    pq.write_table(
        table, buffer, row_group_size=_ROW_GROUP, compression="NONE", use_dictionary=False
    )
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(buffer.getvalue().to_pybytes())


def _read(path: str) -> Any:
    import tensorflow as tf

    with tf.io.gfile.GFile(path, "rb") as file:
        return pq.read_table(pa.BufferReader(file.read()))


def join_parts(
    evaluation_uri: str, labels: Sequence[bytes], baseline_labels: Sequence[bytes] | None
) -> None:
    """Make one file of the parts, with the models' labels in the order of their columns."""
    import tensorflow as tf

    folder = os.path.join(evaluation_uri, _PARTS)
    paths = sorted(tf.io.gfile.glob(os.path.join(folder, "*.parquet")))
    table = pa.concat_tables([_read(path) for path in paths])
    names = np.array(table["filename"].to_pylist(), object)
    # A distributed runner may run a bundle twice: the first of equal names stays.
    _, kept = np.unique(names, return_index=True)
    facts = {_LABELS: _dump(labels)}
    if baseline_labels is not None:
        facts[_BASELINE] = _dump(baseline_labels)
    joined = table.take(pa.array(kept)).combine_chunks().replace_schema_metadata(facts)
    _write(os.path.join(evaluation_uri, PREDICTIONS_FILE), joined)
    tf.io.gfile.rmtree(folder)


def _dump(labels: Iterable[bytes]) -> bytes:
    return json.dumps([decode_text(label) for label in labels]).encode()


def read_predictions(evaluation_uri: str) -> Evaluated:
    """Read what an evaluation kept of each example."""
    table = _read(os.path.join(evaluation_uri, PREDICTIONS_FILE))
    facts = table.schema.metadata
    texts = _texts(table, "label")
    baseline = None
    if _BASELINE in facts:
        baseline = _predictions(table, "baseline_probabilities", facts[_BASELINE], texts)
    return Evaluated(
        filenames=_texts(table, "filename"),
        slices={name: _texts(table, name) for name in SLICINGS},
        candidate=_predictions(table, "probabilities", facts[_LABELS], texts),
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
