"""The prediction file, read whole and in part."""

import contextlib
import itertools
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.contract.artifact_files import list_names
from components.contract.example import SLICINGS
from components.evaluation import prediction_writer
from components.evaluation.prediction_writer import (
    join_parts,
    open_part,
    replace_probabilities,
)
from components.metrics import prediction_file
from components.metrics.classification_metrics import compare_models, measure
from components.metrics.prediction_file import read_predictions, read_sampled
from components.metrics.predictions import Evaluated, drop_probabilities
from components.metrics.score_metrics import Unknowns
from tests.evaluation.metrics_sample import draw_answers


@contextlib.contextmanager
def few_open_files(more: int) -> Iterator[None]:
    """Let this process open only a few more files, as the usual limit does with 1,024 shards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir("/dev/fd")))
    free = itertools.filterfalse(used.__contains__, itertools.count())
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("shards", "url"),
    [(1, "my [folder]"), (40, ""), pytest.param(2, "ram://evaluation", marks=pytest.mark.slow)],
)
def test_predictions_are_joined_in_the_order_of_the_shards(
    shards: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a relative folder, and in a bucket, where Dataflow's workers leave them."""
    monkeypatch.chdir(tmp_path)
    folder = url or str(tmp_path)
    # More than one group of rows.
    examples, classes = 5000, 3
    random = np.random.default_rng(0)
    scores = random.random((2, examples, classes)).astype(np.float32)
    names = [b"%05d \xff" % number for number in random.permutation(examples)]
    labels = [[b"a", b"b", b"c \xff"], [b"c \xff", b"a", b"b"]]
    for number, rows in enumerate(np.array_split(np.arange(examples), shards)):
        columns = {name: [b"a"] * len(rows) for name in ("label", *SLICINGS)}
        columns["filename"] = [names[row] for row in rows]
        with open_part(folder, f"shard {number:02d}", labels) as part:
            for half in np.array_split(np.arange(len(rows)), 2):
                texts = {name: [values[row] for row in half] for name, values in columns.items()}
                part.add(texts, list(scores[:, rows[half]]))
    with few_open_files(20):
        join_parts(folder)
    evaluated = read_predictions(folder)
    encoded = [name.encode("utf-8", "surrogateescape") for name in evaluated.filenames]
    assert encoded == names
    assert evaluated.baseline
    assert evaluated.candidate.labels == ("a", "b", "c \udcff")
    assert evaluated.baseline.ids.tolist() == [1] * examples
    for model, expected in zip((evaluated.candidate, evaluated.baseline), scores, strict=True):
        np.testing.assert_array_equal(model.probabilities, expected)
    assert list_names(folder) == ["predictions.parquet"]


LABELS = tuple("abcdefg")


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.slow
def test_few_probabilities_are_held_and_other_numbers_stay_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_writer, "_ROW_GROUP", 500)
    models = [draw_answers(LABELS, 900, accuracy=a, seed=s) for a, s in ((0.9, 0), (0.8, 1))]
    # The current model does not know the last class.
    labels = [[name.encode() for name in LABELS], [name.encode() for name in (*LABELS[:-1], "z")]]
    images = len(models[0].ids)
    texts = {name: [b"%d" % (row % 3) for row in range(images)] for name in SLICINGS}
    texts["filename"] = [b"%05d" % row for row in range(images)]
    texts["label"] = [LABELS[number].encode() for number in models[0].ids]
    with open_part(str(tmp_path), "shard", labels) as part:
        # The last image is the strangest: files are written in the order of their names.
        backwards = np.arange(images, 0, -1, dtype=np.float32)
        part.add(texts, [model.probabilities for model in models], backwards)
    join_parts(str(tmp_path))
    parsed = list[int]()
    parse = prediction_file._parse

    def count(table: Any) -> Evaluated:
        parsed.append(len(table))
        return parse(table)

    monkeypatch.setattr(prediction_file, "_parse", count)
    whole, sampled = read_predictions(str(tmp_path)), read_sampled(str(tmp_path), most=14_000)
    assert max(parsed) == 500
    last = read_predictions(str(tmp_path), only=[whole.filenames[-1], "missing"])
    assert last.filenames == whole.filenames[-1:]
    assert (last.candidate.probabilities == whole.candidate.probabilities[-1:]).all()
    assert not read_predictions(str(tmp_path), only=[]).filenames
    model = sampled.candidate
    assert model.rows is not None
    assert (model.probabilities.shape, len(model.held.ids)) == ((1_000, 7), 1_000)
    np.testing.assert_array_equal(model.probabilities, whole.candidate.probabilities[model.rows])
    assert (sampled.filenames, sampled.slices) == (whole.filenames, whole.slices)
    for evaluated in (whole, sampled):
        assert evaluated.known_scores is not None
        assert evaluated.known_scores.tolist() == backwards.tolist()
    estimated, exact = compare_models(sampled), compare_models(whole)
    bare = drop_probabilities(whole.candidate)
    assert (bare.stats, bare.probabilities.size) == (whole.candidate.stats, 0)
    assert estimated.slices == exact.slices
    assert estimated.confused == exact.confused
    assert estimated.compared == exact.compared == images - 900
    # A fold has judged one image, whose score is that of the exported model.
    replace_probabilities(str(tmp_path), [{"00003": np.eye(7, dtype=np.float32)[2]}, {}])
    replaced = read_predictions(str(tmp_path))
    assert replaced.candidate.probabilities[3].tolist() == np.eye(7)[2].tolist()
    assert replaced.known_scores is not None
    assert np.flatnonzero(np.isnan(replaced.known_scores)).tolist() == [3]
    unknowns = Unknowns(0.05, 100, threshold=10.5).measure(replaced.known_scores, held_out=True)
    assert unknowns.found == pytest.approx(10 / (images - 1))
    # Of a sixth of the images.
    assert estimated.metrics.scalars["auc"] == measure(model.held).scalars["auc"]
    assert estimated.metrics.scalars["auc"] == pytest.approx(exact.metrics.scalars["auc"], abs=0.02)
    for name in exact.differences.keys() - {"auc"}:
        assert estimated.metrics.scalars[name] == exact.metrics.scalars[name]
        assert estimated.differences[name] == exact.differences[name]
    assert read_sampled(str(tmp_path), most=14 * images).candidate.held.ids.shape == (images,)
