"""The Parquet file of an evaluation that holds the models' predictions for each example.

Workers write parts of it; the executor joins them, sorted, so that its bytes do not depend on how
the work was divided. TFMA itself keeps no predictions, and to run the models again for the report
would cost as much as the evaluation.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.evaluation.metrics.predictions import Evaluated, Ints, Predictions
from components.evaluation.slices import SLICINGS, decode_text
from components.storage.artifact_files import list_names, make_folders, open_file, remove

PREDICTIONS_FILE = "predictions.parquet"
_PARTS = "prediction_parts"

# Rows that are encoded at once: 4,096 x 1,000 classes are 16 MB.
_ROW_GROUP = 4096
_LABELS, _BASELINE = b"labels", b"baseline_labels"
_MATRICES = PROBABILITIES, BASELINE_PROBABILITIES = "probabilities", "baseline_probabilities"


def write_part(evaluation_uri: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows that a worker has to a file of its own.

    Args:
        evaluation_uri: output folder of the Evaluator.
        rows: column → value of each example: probabilities, [classes], as an array of float32, all
            others as bytes.
    """
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    arrays = {
        name: _matrix(values) if name in _MATRICES else pa.array(values, pa.binary())
        for name, values in columns.items()
    }
    _write(os.path.join(evaluation_uri, _PARTS, f"{uuid.uuid4().hex}.parquet"), pa.table(arrays))


def _matrix(rows: Sequence[NDArray[np.float32]]) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(rows)), len(rows[0]))


def _write(path: str, table: Any) -> None:
    # Arrow cannot write to TensorFlow's file objects, which are those of URLs.
    buffer = pa.BufferOutputStream()
    # Probabilities do not compress, and hardly any repeats.
    options = {"compression": "NONE", "use_dictionary": False}
    pq.write_table(table, buffer, row_group_size=_ROW_GROUP, **options)
    make_folders(os.path.dirname(path))
    with open_file(path, "wb") as file:
        file.write(buffer.getvalue().to_pybytes())


def _read(path: str) -> Any:
    with open_file(path, "rb") as file:
        return pq.read_table(pa.BufferReader(file.read()))


def join_parts(
    evaluation_uri: str, labels: Sequence[bytes], baseline_labels: Sequence[bytes] | None
) -> None:
    """Join the parts in one file, with the models' labels in the order of their columns."""
    folder = os.path.join(evaluation_uri, _PARTS)
    parts = [name for name in list_names(folder) if name.endswith(".parquet")]
    table = pa.concat_tables([_read(os.path.join(folder, name)) for name in parts])
    names = np.array(table["filename"].to_pylist(), object)
    # A distributed runner may run a bundle twice: of equal names, the first one is kept.
    _, kept = np.unique(names, return_index=True)
    facts = {_LABELS: _dump(labels)}
    if baseline_labels is not None:
        facts[_BASELINE] = _dump(baseline_labels)
    joined = table.take(pa.array(kept)).combine_chunks().replace_schema_metadata(facts)
    _write(os.path.join(evaluation_uri, PREDICTIONS_FILE), joined)
    remove(folder)


def _dump(labels: Iterable[bytes]) -> bytes:
    return json.dumps([decode_text(label) for label in labels]).encode()


def read_predictions(evaluation_uri: str) -> Evaluated:
    """Read the predictions of an evaluation."""
    table = _read(os.path.join(evaluation_uri, PREDICTIONS_FILE))
    facts = table.schema.metadata
    texts = _texts(table, "label")
    baseline = None
    if _BASELINE in facts:
        baseline = _predictions(table, BASELINE_PROBABILITIES, facts[_BASELINE], texts)
    return Evaluated(
        filenames=_texts(table, "filename"),
        slices={name: _texts(table, name) for name in SLICINGS},
        candidate=_predictions(table, PROBABILITIES, facts[_LABELS], texts),
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
