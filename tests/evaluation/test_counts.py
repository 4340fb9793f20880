"""Counts of batches and slices, and the prediction file."""

import contextlib
import itertools
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from components.contract.example import SLICINGS
from components.evaluation.prediction_writer import join_parts, open_part
from components.metrics.prediction_file import read_predictions
from components.metrics.predictions import (
    Counts,
    PredictionStats,
    count_confusion,
    find_rows,
)
from tests.evaluation.predictions_sample import TABLE


def test_batches_and_slices_have_the_metrics_of_their_examples() -> None:
    predictions = TABLE["skewed"]
    # Every seventh label is unknown to the model.
    ids = np.where(np.arange(len(predictions.ids)) % 7, predictions.ids, -1)
    scores = predictions.probabilities
    batches = [slice(start, start + 17) for start in range(0, len(ids), 17)]
    stats = PredictionStats.concatenate([PredictionStats.of(ids[b], scores[b]) for b in batches])
    slices = {"size": [f"{row % 3} px" for row in range(len(ids))], "folder": ["0 px", *"a" * 436]}
    for (slicing, value), rows in find_rows(slices).items():
        assert list(rows) == [row for row, text in enumerate(slices[slicing]) if text == value]
        found, expected = stats.take(rows), PredictionStats.of(ids[rows], scores[rows])
        assert Counts.of(found).scalars() == pytest.approx(
            Counts.of(expected).scalars(), abs=1e-12, nan_ok=True
        )
        pairs = np.stack([ids[rows], scores[rows].argmax(axis=1)])
        cells, number = np.unique(pairs, axis=1, return_counts=True)
        np.testing.assert_array_equal(count_confusion(found), [*cells, number])


@contextlib.contextmanager
def few_open_files(more: int) -> Iterator[None]:
    """Let this process open only a few more files, as the usual limit does with 1,024 shards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir("/dev/fd")))
    free = itertools.filterfalse(used.__contains__, itertools.count())
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("shards", [1, 40])
def test_predictions_are_joined_in_the_order_of_their_names(shards: int, tmp_path: Path) -> None:
    # More than one group of rows.
    examples, classes = 5000, 3
    random = np.random.default_rng(0)
    scores = random.random((2, examples, classes)).astype(np.float32)
    names = [b"%05d \xff" % number for number in random.permutation(examples)]
    labels = [[b"a", b"b", b"c \xff"], [b"c \xff", b"a", b"b"]]
    for number, rows in enumerate(np.array_split(np.arange(examples), shards)):
        own = {name: [b"a"] * len(rows) for name in ("label", *SLICINGS)}
        own["filename"] = [names[row] for row in rows]
        with open_part(str(tmp_path), f"shard {number}", labels) as part:
            for half in np.array_split(np.arange(len(rows)), 2):
                texts = {name: [of[row] for row in half] for name, of in own.items()}
                part.add(texts, list(scores[:, rows[half]]))
    with few_open_files(20):
        join_parts(str(tmp_path))
    found = read_predictions(str(tmp_path))
    order = np.argsort(np.array(names, object))
    encoded = [name.encode("utf-8", "surrogateescape") for name in found.filenames]
    assert encoded == [names[row] for row in order]
    assert found.baseline
    assert found.candidate.labels == ("a", "b", "c \udcff")
    assert found.baseline.ids.tolist() == [1] * examples
    for model, expected in zip((found.candidate, found.baseline), scores, strict=True):
        np.testing.assert_array_equal(model.probabilities, expected[order])
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.parquet"]
