"""Predictions of cross-validation: of each image, by a model that has not seen it.

Trainer puts them into the SavedModel that it trains on all images. They travel with it, so that
neither this evaluation nor one of a later model takes it to know images by heart.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from components.contract.artifact_files import make_folders, open_file
from components.contract.example import EVAL, FILENAME, SHA256, count_folds
from components.contract.model_files import FOLDS_FILE
from components.evaluation.slices import decode_text
from components.records.record_reader import read_features
from components.records.shard_files import list_shards

if TYPE_CHECKING:
    # Other metrics need no other training.
    from components.evaluation.metrics.predictions import Ints, Scores

_NAME, _KEY = FILENAME.encode(), SHA256.encode()


@dataclass(frozen=True, eq=False)
class FoldPredictions:
    """What the models of all folds predict, one row for each image that was trained on."""

    labels: tuple[str, ...]
    """The label of each column of probabilities, in the order of the model."""
    keys: tuple[str, ...]
    """SHA-256 of each image; copies have a row each."""
    folds: Ints
    """[images], number of the fold, from 0."""
    probabilities: Scores
    """[images, classes]."""

    @property
    def count(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1

    @cached_property
    def rows(self) -> Mapping[str, Scores]:
        """SHA-256 → probabilities, [classes]."""
        return dict(zip(self.keys, self.probabilities, strict=True))


def write_folds(saved_model: str, folds: FoldPredictions) -> None:
    """Write the predictions into the folder of a SavedModel, with the columns of an evaluation."""
    scores = pa.array(folds.probabilities.astype("float32").ravel())
    table = pa.table(
        {
            "sha256": pa.array(folds.keys, pa.string()),
            "fold": pa.array(folds.folds, pa.int64()),
            "probabilities": pa.FixedSizeListArray.from_arrays(scores, len(folds.labels)),
        }
    ).replace_schema_metadata({b"labels": json.dumps(folds.labels).encode()})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    path = os.path.join(saved_model, FOLDS_FILE)
    make_folders(os.path.dirname(path))
    with open_file(path, "wb") as file:
        file.write(buffer.getvalue())


def read_folds(saved_model: str) -> FoldPredictions | None:
    """Read the predictions in the folder of a SavedModel; None if it was not cross-validated."""
    try:
        with open_file(os.path.join(saved_model, FOLDS_FILE), "rb") as file:
            table = pq.read_table(io.BytesIO(file.read()))
    except FileNotFoundError:
        return None
    labels = tuple(json.loads(table.schema.metadata[b"labels"]))
    flat = table["probabilities"].combine_chunks().flatten().to_numpy()
    return FoldPredictions(
        labels=labels,
        keys=tuple(table["sha256"].to_pylist()),
        folds=table["fold"].to_numpy(),
        probabilities=flat.reshape(-1, len(labels)),
    )


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
            name, key = (decode_text(bytes(features.get(of, b""))) for of in (_NAME, _KEY))
            for rows, folds in zip(found, models, strict=True):
                if folds and key in folds.rows:
                    rows[name] = folds.rows[key]
                elif folds is None and trained_on:
                    rows[name] = None
    return found
