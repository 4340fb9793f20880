"""Predictions of cross-validation, in a model and in an evaluation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tfx import types

from components.contract.model_files import NETWORK_FILE
from components.contract.properties import SPLIT_PROPERTY
from components.evaluation.config import EvaluationConfig, Threshold
from components.metrics.evaluation_files import read_judgment
from components.metrics.fold_predictions import FoldPredictions, write_folds, write_learned
from components.metrics.prediction_file import read_predictions
from components.metrics.predictions import Predictions
from tests.evaluation.predictions_sample import make_predictions
from tests.evaluation.sample_models import Model, evaluate, write_examples

pytestmark = [pytest.mark.xdist_group("evaluated"), pytest.mark.slow]

LABELS = ("a", "b")
EACH, TRAIN = 50, 70


def make_folds(predictions: Predictions, *, rows: int, right: float) -> FoldPredictions:
    """Return predictions of two folds for the first rows, so many of them right."""
    said = np.where(
        np.arange(rows) < right * rows, predictions.ids[:rows], 1 - predictions.ids[:rows]
    )
    probabilities = np.eye(2, dtype=np.float32)[said] * 0.8 + 0.1
    keys = tuple(f"{row:064x}" for row in range(rows))
    return FoldPredictions(LABELS, keys, np.arange(rows) % 2, probabilities)


def save(folder: Path, folds: FoldPredictions | None) -> types.Artifact:
    model = Model(LABELS).save(folder)
    if folds:
        write_folds(str(folder / "Format-Serving"), folds)
    return model


@pytest.fixture(scope="module")
def predictions() -> Predictions:
    """Answers of a model that knows all images by heart."""
    drawn = make_predictions(LABELS, each=EACH)
    # Both classes in both splits.
    order = np.argsort(np.arange(len(drawn.ids)) % EACH, kind="stable")
    ids = drawn.ids[order]
    return replace(drawn, ids=ids, probabilities=np.eye(2, dtype=np.float32)[ids] * 0.98 + 0.01)


def test_no_model_is_judged_by_images_that_it_knows(
    predictions: Predictions, tmp_path: Path
) -> None:
    images = 2 * EACH
    examples = write_examples(tmp_path / "examples", "eval", predictions, train=TRAIN)
    model = save(tmp_path / "model", make_folds(predictions, rows=images, right=0.8))
    network = tmp_path / "model" / "Format-Serving" / NETWORK_FILE
    network.write_text('{"picked": "the training"}')
    # It has not seen the last ten, which it answers rightly.
    in_use = save(tmp_path / "in_use", make_folds(predictions, rows=images - 10, right=0.7))
    evaluation, _ = evaluate(tmp_path, examples, model, baseline=in_use)
    assert evaluation.get_string_custom_property(SPLIT_PROPERTY) == "2 folds"
    verdict = read_judgment(evaluation.uri).verdict
    assert "0.800 for this model, 0.730 for the current one" in verdict.reasons[-1]
    assert verdict.evidence.endswith("chance: the same images picked the training.")
    assert len(read_predictions(evaluation.uri).filenames) == images


def test_a_model_in_use_without_folds_is_compared_on_the_eval_split(
    predictions: Predictions, tmp_path: Path
) -> None:
    examples = write_examples(tmp_path / "examples", "eval", predictions, train=TRAIN)
    model = save(tmp_path / "model", make_folds(predictions, rows=2 * EACH, right=0.9))
    config = EvaluationConfig(thresholds=[Threshold("macro_f1", max_worsening=0.5)])
    in_use = save(tmp_path / "in_use", None)
    evaluation, blessing = evaluate(tmp_path, examples, model, baseline=in_use, config=config)
    verdict = read_judgment(evaluation.uri).verdict
    assert ": 30 images are too few to compare it with the current model." in verdict.headline
    assert "1.000 for this model, 1.000 for the current one" in verdict.reasons[-1]
    assert "Only 30 of 100 images are compared" in verdict.headline
    assert not blessing.get_int_custom_property("blessed")
    kept = read_predictions(evaluation.uri)
    assert (len(kept.filenames), len(kept.known)) == (2 * EACH, 30)
    assert kept.candidate.stats.right.mean() == 0.9


def test_a_model_in_use_is_not_judged_on_what_it_was_trained_on(
    predictions: Predictions, tmp_path: Path
) -> None:
    """As when images have been divided into other splits."""
    examples = write_examples(tmp_path / "examples", "eval", predictions)
    in_use = save(tmp_path / "in_use", None)
    keys = [f"{row:064x}" for row in range(2 * EACH)]
    evaluate(tmp_path / "none", examples, save(tmp_path / "model", None), baseline=in_use)
    assert len(read_predictions(str(tmp_path / "none" / "evaluation")).known) == 2 * EACH
    write_learned(str(tmp_path / "in_use" / "Format-Serving"), keys[:60])
    evaluation, _ = evaluate(tmp_path, examples, save(tmp_path / "again", None), baseline=in_use)
    assert "Only 40 of 100 images are compared" in read_judgment(evaluation.uri).verdict.headline
    assert len(read_predictions(evaluation.uri).known) == 40
    write_learned(str(tmp_path / "in_use" / "Format-Serving"), keys)
    evaluation, _ = evaluate(tmp_path, examples, save(tmp_path / "last", None), baseline=in_use)
    verdict = read_judgment(evaluation.uri).verdict
    assert verdict.outcome == "undecided"
    assert "the current model was trained on all of these images" in verdict.headline


def test_a_model_in_use_that_knows_the_eval_split(predictions: Predictions, tmp_path: Path) -> None:
    """As when a folder grows beyond the images that are cross-validated."""
    examples = write_examples(tmp_path / "examples", "eval", predictions)
    in_use = save(tmp_path / "in_use", make_folds(predictions, rows=2 * EACH, right=0.7))
    evaluation, blessing = evaluate(
        tmp_path, examples, save(tmp_path / "model", None), baseline=in_use
    )
    assert blessing.get_int_custom_property("blessed")
    reason = read_judgment(evaluation.uri).verdict.reasons[-1]
    assert "1.000 for this model, 0.700 for the current one" in reason
