"""Predictions of cross-validation: of each image, by a model that has not seen it.

Trainer puts them into the SavedModel that it trains on all images. They travel with it, so that
neither this evaluation nor one of a later model takes it to know images by heart.
"""

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from components.contract.artifact_files import make_folders, open_file
from components.contract.model_files import FOLDS_FILE
from components.metrics.prediction_file import read_scores
from components.metrics.predictions import Ints, Scores


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
    return FoldPredictions(
        labels=tuple(json.loads(table.schema.metadata[b"labels"])),
        keys=tuple(table["sha256"].to_pylist()),
        folds=table["fold"].to_numpy(),
        probabilities=read_scores(table, "probabilities"),
    )
