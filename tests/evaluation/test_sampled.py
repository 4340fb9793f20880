from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.contract.example import SLICINGS
from components.evaluation import prediction_file
from components.evaluation.metrics.classification_metrics import compare
from components.evaluation.metrics.curves import measure_areas
from components.evaluation.metrics.predictions import Evaluated
from components.evaluation.metrics.sampled import SampledPredictions, drop_probabilities
from components.evaluation.metrics.score_histogram import ScoreHistogram
from components.evaluation.prediction_file import (
    join_parts,
    open_part,
    read_predictions,
    read_sampled,
)
from tests.evaluation.metrics_sample import draw_answers

LABELS = tuple("abcdefg")


@pytest.mark.parametrize("sharpness", [1, 8])
def test_a_histogram_gives_the_areas_within_its_error(sharpness: float) -> None:
    drawn = draw_answers(LABELS, 400, accuracy=0.8)
    sharp = drawn.probabilities.astype(np.float64) ** sharpness
    probabilities = (sharp / sharp.sum(axis=1, keepdims=True)).astype(np.float32)
    # Some labels are wrong, and some unknown to the model.
    ids = np.where(np.arange(len(drawn.ids)) % 9, drawn.ids, drawn.ids[::-1])
    ids = np.where(np.arange(len(drawn.ids)) % 50, ids, -1)
    histogram = ScoreHistogram(len(LABELS))
    for rows in np.array_split(np.arange(len(ids)), 3):
        histogram.add(ids[rows], probabilities[rows])
    error = histogram.measure_error()
    assert 0 < error < 0.01
    (area, precision), exact = histogram.measure_areas(), measure_areas(ids, probabilities)
    assert abs(area - exact[0]).max() <= error
    np.testing.assert_allclose(precision, exact[1], atol=0.01)


def test_classes_without_examples_or_with_nan_have_no_area() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, np.nan], [0.6, 0.4, 0]], np.float32)
    histogram = ScoreHistogram(3)
    histogram.add(np.array([0, 2, 0]), probabilities)
    area, precision = histogram.measure_areas()
    assert np.isnan(area).tolist() == np.isnan(precision).tolist() == [False, True, True]
    assert area[0] == precision[0] == 1


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.slow
def test_few_probabilities_are_held_and_other_numbers_stay_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_file, "_ROW_GROUP", 500)
    models = [draw_answers(LABELS, 900, accuracy=a, seed=s) for a, s in ((0.9, 0), (0.8, 1))]
    # The model in use does not know the last class.
    labels = [[of.encode() for of in LABELS], [of.encode() for of in (*LABELS[:-1], "z")]]
    images = len(models[0].ids)
    texts = {name: [b"%d" % (row % 3) for row in range(images)] for name in SLICINGS}
    texts["filename"] = [b"%05d" % row for row in range(images)]
    texts["label"] = [LABELS[number].encode() for number in models[0].ids]
    with open_part(str(tmp_path), "shard", labels) as part:
        # The last image is the strangest: files are written in the order of their names.
        backwards = np.arange(images, 0, -1, dtype=np.float32)
        part.add(texts, [of.probabilities for of in models], backwards)
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
    assert isinstance(model, SampledPredictions)
    assert (model.probabilities.shape, len(model.held.ids)) == ((1_000, 7), 1_000)
    np.testing.assert_array_equal(model.probabilities, whole.candidate.probabilities[model.rows])
    assert (sampled.filenames, sampled.slices) == (whole.filenames, whole.slices)
    for of in (whole, sampled):
        assert of.known_scores is not None
        assert of.known_scores.tolist() == backwards.tolist()
    found, exact = compare(sampled), compare(whole)
    bare = drop_probabilities(whole.candidate)
    assert (bare.stats, bare.probabilities.size) == (whole.candidate.stats, 0)
    assert found.slices == exact.slices
    assert found.confused == exact.confused
    assert found.compared == exact.compared == images - 900
    assert model.histogram
    assert found.metrics.scalars["auc"] == pytest.approx(
        exact.metrics.scalars["auc"], abs=model.histogram.measure_error() + 1e-12
    )
    for name in exact.differences.keys() - {"auc"}:
        assert found.metrics.scalars[name] == exact.metrics.scalars[name]
        assert found.differences[name] == exact.differences[name]
    assert read_sampled(str(tmp_path), most=14 * images).candidate.held.ids.shape == (images,)
