"""Writes the Parquet file with the models' predictions for each example of an evaluation.

TFMA keeps no predictions, and running the models again for the report would cost as much as the
evaluation. Workers write a part per shard, and the executor joins them, some rows at a time, so
that memory does not grow with the images.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.contract.artifact_files import (
    list_names,
    make_folders,
    make_scratch,
    put,
    remove,
)
from components.contract.example import EVAL, FILENAME, SHA256, count_folds, decode_text
from components.contract.model_files import KNOWN_SCORE
from components.metrics.fold_predictions import FoldPredictions, shorten
from components.metrics.prediction_file import (
    LABEL_KEYS,
    PREDICTIONS_FILE,
    PROBABILITIES,
    read_groups,
    read_row_groups,
    read_scores,
    read_texts,
)
from components.metrics.predictions import Scores
from components.records.shard_files import list_shards
from components.records.tfrecord import read_features

# Folder of the parts in an evaluation, removed when they are joined.
_PARTS = "prediction_parts"
# Probabilities do not compress, and hardly repeat.
_WRITE_OPTIONS = {"compression": "NONE", "use_dictionary": False}
# Rows written at once: 4,096 x 1,000 classes are 16 MB.
_ROW_GROUP = 4096
_NAME, _KEY = FILENAME.encode(), SHA256.encode()


class PartWriter:
    """Writes the predictions of a shard, batch by batch."""

    def __init__(self, path: str, labels: Sequence[Sequence[bytes]]) -> None:
        """Write to a file on the disk; `labels` are those of each model's columns."""
        names = (json.dumps(list(map(decode_text, of_model))).encode() for of_model in labels)
        self._facts = dict(zip(LABEL_KEYS, names, strict=False))
        self._path, self._waiting = path, list[Any]()
        self._writer: Any = None

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
        columns = {name: pa.array(values, pa.binary()) for name, values in texts.items()}
        if known_scores is not None:
            columns[KNOWN_SCORE] = pa.array(known_scores, pa.float32())
        columns |= zip(PROBABILITIES, map(_as_column, probabilities), strict=False)
        self._waiting.append(pa.table(columns, metadata=self._facts))
        if sum(map(len, self._waiting)) >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the batches that wait."""
        table = pa.concat_tables(self._waiting)
        self._writer = self._writer or pq.ParquetWriter(self._path, table.schema, **_WRITE_OPTIONS)
        self._writer.write_table(table, _ROW_GROUP)
        self._waiting.clear()

    def close(self) -> None:
        """Write the rest; there is at least one batch."""
        if self._waiting:
            self.flush()
        self._writer.close()


def _as_column(scores: Scores) -> Any:
    values = pa.array(scores.astype(np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(values, scores.shape[1])


@contextmanager
def open_part(
    evaluation_uri: str, name: str, labels: Sequence[Sequence[bytes]]
) -> Iterator[PartWriter]:
    """Open the part of a shard, which appears whole or not at all.

    If a distributed runner gives the same shard to two workers, the last one wins.
    """
    folder = os.path.join(evaluation_uri, _PARTS)
    make_folders(folder)
    # pyarrow cannot write to TensorFlow's files of a bucket.
    with make_scratch(folder) as scratch:
        unfinished = os.path.join(scratch, name)
        writer = PartWriter(unfinished, labels)
        yield writer
        writer.close()
        put(unfinished, f"{folder}/{name}.parquet")


def join_parts(evaluation_uri: str) -> None:
    """Join the parts into one file, in the order of the shards, and remove them.

    Only one part is open at a time, as most systems let a process open 1,024 files.
    """
    folder = os.path.join(evaluation_uri, _PARTS)
    paths = [os.path.join(folder, n) for n in list_names(folder) if n.endswith(".parquet")]
    _write_file(evaluation_uri, (group for path in paths for group in _take_groups(path)))
    remove(folder)


def _take_groups(path: str) -> Iterator[Any]:
    """Yield the row groups of a part, then remove it: the disk needs no space for two copies."""
    yield from read_row_groups(path)
    remove(path)


def _write_file(evaluation_uri: str, groups: Iterable[Any]) -> None:
    """Write the predictions, which replace earlier ones when they are complete."""
    target = os.path.join(evaluation_uri, PREDICTIONS_FILE)
    with make_scratch(evaluation_uri) as scratch:
        path, writer = os.path.join(scratch, PREDICTIONS_FILE), None
        for group in groups:
            writer = writer or pq.ParquetWriter(path, group.schema, **_WRITE_OPTIONS)
            writer.write_table(group)
        if writer:
            writer.close()
            put(path, target)


def replace_probabilities(
    evaluation_uri: str, models: Sequence[Mapping[str, Scores | None]]
) -> None:
    """Replace probabilities of some images, whose `known_score` becomes NaN.

    For each model, file name → [classes], or None for an image that cannot judge the model.
    """

    def replace(group: Any) -> Any:
        names = read_texts(group, "filename")
        if KNOWN_SCORE in group.column_names:
            # It is that of the exported model, which may have seen the image.
            replaced = [name in models[0] for name in names]
            known_scores = np.where(replaced, np.float32(np.nan), group[KNOWN_SCORE].to_numpy())
            group = _set_column(group, KNOWN_SCORE, pa.array(known_scores))
        for column, known in zip(PROBABILITIES, models, strict=False):
            scores = read_scores(group, column).copy()
            for number, name in enumerate(names):
                if name in known:
                    row = known[name]
                    scores[number] = np.nan if row is None else row
            group = _set_column(group, column, _as_column(scores))
        return group

    _write_file(evaluation_uri, map(replace, read_groups(evaluation_uri, None)))


def _set_column(table: Any, name: str, values: Any) -> Any:
    index = table.column_names.index(name)
    return table.set_column(index, table.schema.field(index), values)


def find_unseen(
    examples_uri: str,
    split: str,
    models: Sequence[FoldPredictions | None],
    learned: Sequence[Set[int]],
) -> list[dict[str, Scores | None]]:
    """Return what each model, or one of its folds, says of images that it was trained on.

    That is file name → probabilities by a model that has not seen the image, or None if there is
    none: a model without folds was trained on the images that it has `learned`, and on all splits
    of these folds but eval.
    """
    kept: list[dict[str, Scores | None]] = [{} for _ in models]
    for path in list_shards(examples_uri, split) if any((*models, *learned)) else ():
        trained_on = count_folds(split) and not path.split("/")[-2].endswith(f"-{EVAL}")
        for features in read_features(path, (_NAME, _KEY)):
            name, key = (
                decode_text(bytes(features.get(feature, b""))) for feature in (_NAME, _KEY)
            )
            for rows, folds, known in zip(kept, models, learned, strict=True):
                if folds and key in folds.rows:
                    rows[name] = folds.rows[key]
                elif (folds is None and trained_on) or shorten(key) in known:
                    rows[name] = None
    return kept
