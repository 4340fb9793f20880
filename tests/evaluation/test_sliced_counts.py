"""Counts of all slices at once, held against `MetricCounts` of each slice by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from components.evaluation.answering.split_counts import (
    SplitCounts,
    add_up_counts,
    read_counts,
    write_counts,
)
from components.evaluation.metrics.curves import mean_auc
from components.evaluation.metrics.intervals import paired_interval, paired_interval_of_counts
from components.evaluation.metrics.metric_counts import MetricCounts
from components.evaluation.metrics.predictions import Answers, Predictions
from components.evaluation.metrics.slice_areas import measure_slice_areas
from components.evaluation.metrics.sliced_counts import EVERYTHING, SlicedCounts, add_up
from components.evaluation.prediction_file import read_predictions
from components.evaluation.prediction_parts import join_parts, open_part
from components.evaluation.slices import SLICINGS
from tests.evaluation.predictions_sample import TABLE, draw_predictions


def make_slices(examples: int) -> dict[str, list[str]]:
    rows = np.arange(examples)
    return {
        "size": [f"{number} px" for number in rows % 3],
        # One of a single example, which has the name of another slicing's value.
        "folder": ["0 px", *map(str, rows[1:] // 40)],
    }


def answer(predictions: Predictions, rows: slice = slice(None)) -> Answers:
    """Every seventh label is one that the model does not know."""
    ids = np.where(np.arange(len(predictions.ids)) % 7, predictions.ids, -1)
    return Answers.of(ids[rows], predictions.probabilities[rows])


KINDS = ("skewed", "a class without examples", "two classes")


@pytest.mark.parametrize("predictions", [TABLE[kind] for kind in KINDS], ids=KINDS)
@pytest.mark.parametrize("batch", [1000, 17], ids=["one batch", "batches that are added up"])
def test_each_slice_has_the_metrics_of_its_examples(predictions: Predictions, batch: int) -> None:
    examples = len(predictions.ids)
    slices = make_slices(examples)
    parts = []
    for start in range(0, examples, batch):
        rows = slice(start, start + batch)
        of_batch = {name: texts[rows] for name, texts in slices.items()}
        parts.append(SlicedCounts.of(answer(predictions, rows), of_batch))
    counts = add_up(parts)
    assert list(counts.places) == sorted(counts.places)
    assert len(counts.places) == 1 + 3 + len({*slices["folder"]})
    ids = np.where(np.arange(examples) % 7, predictions.ids, -1)
    for index, (slicing, value) in enumerate(counts.places):
        texts = np.array(slices.get(slicing, [""] * examples))
        there = texts == value
        expected = MetricCounts.of(Answers.of(ids[there], predictions.probabilities[there]))
        found = counts.of_place(index)
        assert found.examples == there.sum()
        np.testing.assert_array_equal(found.classes, expected.classes)
        np.testing.assert_array_equal(found.counts, expected.counts)
        assert found.scalars() == pytest.approx(expected.scalars(), abs=1e-12, nan_ok=True)
        predicted = predictions.probabilities[there].argmax(axis=1)
        cells, number = np.unique([ids[there], predicted], axis=1, return_counts=True)
        np.testing.assert_array_equal(counts.cells_of(index), [*cells, number])


def test_what_one_of_two_models_is_right_about_and_files_of_counts(tmp_path: Path) -> None:
    candidate, baseline = (draw_predictions([30, 20, 10], seed=0, sureness=s) for s in (2, 1))
    slices = make_slices(60)
    parts = [
        SplitCounts.of(
            [answer(candidate, rows), answer(baseline, rows)],
            {name: texts[rows] for name, texts in slices.items()},
        )
        for rows in (slice(0, 50), slice(50, 60))
    ]
    for number, part in enumerate(parts):
        write_counts(str(tmp_path), f"shard {number}", part)
    # A runner that repeats a shard does not count it twice.
    write_counts(str(tmp_path), "shard 1", parts[1])
    found, expected = read_counts(str(tmp_path)), add_up_counts(parts)
    right, before = answer(candidate).right, answer(baseline).right
    assert paired_interval_of_counts(60, found.gained, found.lost) == paired_interval(right, before)
    for model, wanted in zip(found.models, expected.models, strict=True):
        assert model.places == wanted.places
        for name in ("cells", "bins", "top", "loss"):
            np.testing.assert_array_equal(getattr(model, name), getattr(wanted, name))


def test_areas_of_slices() -> None:
    predictions = TABLE["a class without examples"]
    slices = make_slices(len(predictions.ids))
    areas = measure_slice_areas(predictions, slices)
    assert areas.keys() == {*SlicedCounts.of(predictions.answers, slices).places}
    rows = np.arange(len(predictions.ids)) % 3 == 1
    area = mean_auc(predictions.ids[rows], predictions.probabilities[rows])
    assert areas["size", "1 px"] == area
    assert np.isnan(areas["folder", "0 px"])
    assert areas[EVERYTHING] == mean_auc(predictions.ids, predictions.probabilities)


@pytest.mark.parametrize("shards", [1, 3])
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
