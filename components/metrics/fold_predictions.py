"""What a model has learned by heart: the digests of its images, or its predictions for them.

Trainer puts them into the SavedModel. They travel with it, so that neither this evaluation nor one
of a later model takes an image to be new to it. After cross-validation, the predictions are those
of the model of a fold, which has not seen the image.
"""

import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.contract.artifact_files import make_folders, open_file
from components.contract.model_files import FOLDS_FILE, LEARNED_FILE
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
    _write(os.path.join(saved_model, FOLDS_FILE), buffer)


def _write(path: str, content: io.BytesIO) -> None:
    make_folders(os.path.dirname(path))
    with open_file(path, "wb") as file:
        file.write(content.getvalue())


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


def write_learned(saved_model: str, keys: Iterable[str]) -> None:
    """Write which images a model was trained on, by their SHA-256."""
    buffer = io.BytesIO()
    np.save(buffer, np.fromiter(map(shorten, keys), np.uint64))
    _write(os.path.join(saved_model, LEARNED_FILE), buffer)


def read_learned(saved_model: str) -> frozenset[int]:
    """Read which images a model was trained on, as `shorten` names them; none if it is unknown."""
    try:
        with open_file(os.path.join(saved_model, LEARNED_FILE), "rb") as file:
            return frozenset(np.load(io.BytesIO(file.read()), allow_pickle=False).tolist())
    except FileNotFoundError:
        return frozenset()


def shorten(sha256: str) -> int:
    """Return the last 8 bytes of a digest; 0 of none, as another component may write none."""
    return int(sha256[-16:] or "0", 16)
