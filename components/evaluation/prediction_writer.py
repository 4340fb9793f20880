"""Writes the Parquet file with the models' predictions for each example of an evaluation.

TFMA keeps no predictions, and running the models again for the report would cost as much as the
evaluation. Workers write a part per shard, and the executor joins them. A part is two files: rows
of float32, read one by one when the parts are joined, so that memory does not grow with the images;
and a table of the texts, written last.
"""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
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
from components.contract.example import EVAL, FILENAME, SHA256, count_folds, decode_text
from components.contract.model_files import KNOWN_SCORE
from components.metrics.fold_predictions import FoldPredictions
from components.metrics.prediction_file import (
    COPY_BYTES,
    LABEL_KEYS,
    PREDICTIONS_FILE,
    PROBABILITIES,
    open_table,
    read_groups,
    read_scores,
    read_texts,
)
from components.metrics.predictions import Ints, Scores
from components.records.record_reader import read_features
from components.records.shard_files import list_shards

# Folder of the parts in an evaluation, removed when they are joined.
_PARTS = "prediction_parts"
_ROWS, _TEXTS = ".rows", ".parquet"
# Probabilities do not compress, and hardly repeat.
_WRITE_OPTIONS = {"compression": "NONE", "use_dictionary": False}
# Rows encoded at once: 4,096 x 1,000 classes are 16 MB.
_ROW_GROUP = 4096
_NAME, _KEY = FILENAME.encode(), SHA256.encode()


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
        columns = {name: pa.array(values, pa.binary()) for name, values in self._texts.items()}
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
    facts = dict(zip(LABEL_KEYS, names, strict=False))
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
        tables = [open_table(os.path.join(folder, name + _TEXTS)).read() for name in names]
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
        shutil.copyfileobj(file, target, COPY_BYTES)


def _write_sorted(path: str, texts: Any, rows: int) -> None:
    """Write the table `texts` with its rows, a file descriptor, in the order of the file names."""
    schema, widths = texts.schema, []
    for name, key in zip(PROBABILITIES, LABEL_KEYS, strict=True):
        if key in schema.metadata:
            widths.append(len(json.loads(schema.metadata[key])))
            schema = schema.append(pa.field(name, pa.list_(pa.float32(), widths[-1])))
    order = np.argsort(np.array(texts["filename"].to_pylist(), object), kind="stable")
    with pq.ParquetWriter(path, schema, **_WRITE_OPTIONS) as writer:
        for start in range(0, len(order), _ROW_GROUP):
            group = order[start : start + _ROW_GROUP]
            models = np.split(_read_rows(rows, group, sum(widths)), np.cumsum(widths)[:-1], axis=1)
            scores = [
                pa.FixedSizeListArray.from_arrays(pa.array(scores.ravel()), scores.shape[1])
                for scores in models
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
        for group in read_groups(evaluation_uri, None):
            names = read_texts(group, "filename")
            for column, known in zip(PROBABILITIES, models, strict=False):
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
    scores = read_scores(table, column).copy()
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


def find_unseen(
    examples_uri: str, split: str, models: Sequence[FoldPredictions | None]
) -> list[dict[str, Scores | None]]:
    """Return what each model, or one of its folds, says of images that it was trained on.

    That is file name → probabilities by a model that has not seen the image, or None if there is
    none: a model without folds was trained on all splits of these folds but eval.
    """
    found: list[dict[str, Scores | None]] = [{} for _ in models]
    for path in list_shards(examples_uri, split) if any(models) else ():
        trained_on = count_folds(split) and not path.split("/")[-2].endswith(f"-{EVAL}")
        for features in read_features(path, (_NAME, _KEY)):
            name, key = (
                decode_text(bytes(features.get(feature, b""))) for feature in (_NAME, _KEY)
            )
            for rows, folds in zip(found, models, strict=True):
                if folds and key in folds.rows:
                    rows[name] = folds.rows[key]
                elif folds is None and trained_on:
                    rows[name] = None
    return found
