"""Counts of batches and slices, and the prediction file."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from components.evaluation.metrics.counts import OVERALL, Counts, ModelCounts, SlicedCounts
from components.evaluation.metrics.curves import mean_auc
from components.evaluation.metrics.intervals import paired_interval, paired_interval_of_counts
from components.evaluation.metrics.predictions import Evaluated, Predictions, PredictionStats
from components.evaluation.metrics.slice_metrics import measure_slice_areas
from components.evaluation.prediction_file import read_predictions
from components.evaluation.prediction_parts import join_parts, open_part
from components.evaluation.slices import SLICINGS
from tests.evaluation.predictions_sample import TABLE, as_evaluated, draw_predictions


def make_slices(examples: int) -> dict[str, list[str]]:
    rows = np.arange(examples)
    return {
        "size": [f"{number} px" for number in rows % 3],
        # A slice of one example, named like a value of another slicing.
        "folder": ["0 px", *map(str, rows[1:] // 40)],
    }


def stats_of(predictions: Predictions, rows: slice = slice(None)) -> PredictionStats:
    """Every seventh label is unknown to the model."""
    ids = np.where(np.arange(len(predictions.ids)) % 7, predictions.ids, -1)
    return PredictionStats.of(ids[rows], predictions.probabilities[rows])


KINDS = ("skewed", "a class without examples", "two classes")


@pytest.mark.parametrize("predictions", [TABLE[kind] for kind in KINDS], ids=KINDS)
@pytest.mark.parametrize("batch", [1000, 17, 1], ids=["one batch", "batches", "single examples"])
def test_each_slice_has_the_metrics_of_its_examples(predictions: Predictions, batch: int) -> None:
    examples = len(predictions.ids)
    slices = make_slices(examples)
    parts = []
    for start in range(0, examples, batch):
        rows = slice(start, start + batch)
        of_batch = {name: texts[rows] for name, texts in slices.items()}
        parts.append(SlicedCounts.of(stats_of(predictions, rows), of_batch))
    counts = SlicedCounts.add_up(parts)
    assert list(counts.slices) == sorted(counts.slices)
    assert len(counts.slices) == 1 + 3 + len({*slices["folder"]})
    ids = np.where(np.arange(examples) % 7, predictions.ids, -1)
    for index, (slicing, value) in enumerate(counts.slices):
        texts = np.array(slices.get(slicing, [""] * examples))
        there = texts == value
        expected = Counts.of(PredictionStats.of(ids[there], predictions.probabilities[there]))
        found = counts.select(index)
        assert found.examples == there.sum()
        np.testing.assert_array_equal(found.classes, expected.classes)
        np.testing.assert_array_equal(found.per_class, expected.per_class)
        assert found.scalars() == pytest.approx(expected.scalars(), abs=1e-12, nan_ok=True)
        predicted = predictions.probabilities[there].argmax(axis=1)
        cells, number = np.unique([ids[there], predicted], axis=1, return_counts=True)
        np.testing.assert_array_equal(counts.confusion(index), [*cells, number])


def test_no_examples_have_no_scalars() -> None:
    empty = PredictionStats.of(np.empty(0, np.int64), np.empty((0, 3), np.float32))
    assert np.isnan(list(Counts.of(empty).scalars().values())).all()


def test_counts_of_two_models_in_batches() -> None:
    candidate, baseline = (draw_predictions([30, 20, 10], seed=0, sureness=s) for s in (2, 1))
    slices = {name: tuple(texts) for name, texts in make_slices(60).items()}
    whole = as_evaluated(candidate, baseline, slices)
    batches = [
        Evaluated(
            whole.filenames[rows],
            {name: texts[rows] for name, texts in slices.items()},
            *(
                Predictions(model.labels, model.ids[rows], model.probabilities[rows])
                for model in (candidate, baseline)
            ),
        )
        for rows in (slice(0, 50), slice(50, 60))
    ]
    found, expected = ModelCounts.of(batches), ModelCounts.of([whole])
    interval = paired_interval(candidate.stats.right, baseline.stats.right)
    for counts in (found, expected):
        assert paired_interval_of_counts(60, counts.gained, counts.lost) == interval
    for model, wanted in zip(found.models, expected.models, strict=True):
        assert model.slices == wanted.slices
        for name in ("cells", "bins", "top", "loss"):
            np.testing.assert_allclose(getattr(model, name), getattr(wanted, name), rtol=1e-12)


def test_areas_of_slices() -> None:
    predictions = TABLE["a class without examples"]
    slices = make_slices(len(predictions.ids))
    areas = measure_slice_areas(predictions, slices)
    assert areas.keys() == {*SlicedCounts.of(predictions.stats, slices).slices}
    rows = np.arange(len(predictions.ids)) % 3 == 1
    area = mean_auc(predictions.ids[rows], predictions.probabilities[rows])
    assert areas["size", "1 px"] == area
    assert np.isnan(areas["folder", "0 px"])
    assert areas[OVERALL] == mean_auc(predictions.ids, predictions.probabilities)


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
