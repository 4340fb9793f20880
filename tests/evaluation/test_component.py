"""The real Evaluator, with TFMA, on known predictions."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tfx import types

from components.contract.properties import MAJORITY_PROPERTY, SPLIT_PROPERTY
from components.evaluation import fresh_process
from components.evaluation.config import EvaluationConfig, Threshold
from components.metrics.evaluation_files import read_judgment
from components.metrics.prediction_file import PREDICTIONS_FILE, read_predictions
from components.metrics.predictions import (
    OVERALL,
    Counts,
    Evaluated,
    Predictions,
    PredictionStats,
    SliceKey,
)
from components.metrics.score_metrics import mean_auc
from tests.evaluation.predictions_sample import make_predictions
from tests.evaluation.sample_models import Model, evaluate, write_examples

LABELS = ("cat", "7", "<b>|日本語", "dog")
EACH = 30

THRESHOLDS = [
    Threshold("ece", at_most=0.001),
    Threshold("accuracy", slice="class=7", at_least=0.999),
    Threshold("accuracy", slice="format=gif", at_least=0.1),
    Threshold("macro_f1", slice="format", at_least=0.1, at_most=1),
    Threshold("auc", slice="luminance", at_least=0.1, max_worsening=0.9),
]

CANDIDATE, BASELINE = "candidate", "baseline"
Found = dict[SliceKey, dict[str, dict[str, float]]]
"""Slice → model → metric → value."""

# The real Evaluator: TFMA takes seconds for each run.
pytestmark = [pytest.mark.xdist_group("evaluated"), pytest.mark.slow]


@pytest.fixture(scope="module")
def predictions() -> Predictions:
    return make_predictions(LABELS, each=EACH)


@pytest.fixture(scope="module")
def evaluation(
    predictions: Predictions, tmp_path_factory: pytest.TempPathFactory
) -> types.Artifact:
    """A candidate against a baseline that knows all classes but the last, in another order."""
    folder = tmp_path_factory.mktemp("evaluator")
    examples = write_examples(folder / "examples", "test", predictions)
    model = Model(LABELS).save(folder / "model")
    baseline = Model(LABELS[2::-1], columns=len(LABELS)).save(folder / "baseline")
    config = EvaluationConfig(thresholds=THRESHOLDS)
    evaluation, blessing = evaluate(folder, examples, model, baseline=baseline, config=config)
    assert not blessing.get_int_custom_property("blessed")
    return evaluation


@pytest.fixture(scope="module")
def measured(evaluation: types.Artifact) -> Found:
    """The metrics that TFMA reads from its files."""
    by_slice: Found = {}
    for of_slice in tfma.load_metrics(evaluation.uri):
        parts = [(p.column, p.bytes_value.decode()) for p in of_slice.slice_key.single_slice_keys]
        by_model = by_slice.setdefault(next(iter(parts), OVERALL), {})
        for item in of_slice.metric_keys_and_values:
            if not item.key.is_diff:
                values = by_model.setdefault(item.key.model_name, {})
                values[item.key.name] = item.value.double_value.value
    return by_slice


@pytest.fixture(scope="module")
def kept(evaluation: types.Artifact) -> Evaluated:
    return read_predictions(evaluation.uri)


def test_every_slice_has_the_metrics_of_its_examples(measured: Found, kept: Evaluated) -> None:
    assert kept.baseline
    for key, by_model in measured.items():
        there = np.full(len(kept.filenames), True)
        if key != OVERALL:
            there = np.array(kept.slices[key[0]]) == key[1]
        for name, model in ((CANDIDATE, kept.candidate), (BASELINE, kept.baseline)):
            ids, probabilities = model.ids[there], model.probabilities[there]
            expected = {
                **Counts.of(PredictionStats.of(ids, probabilities)).scalars(),
                "auc": mean_auc(ids, probabilities),
                "example_count": there.sum(),
            }
            assert by_model[name] == pytest.approx(expected, abs=1e-6, nan_ok=True), (key, name)


def test_tfma_loads_metrics_plots_and_thresholds(
    evaluation: types.Artifact, measured: Found, kept: Evaluated
) -> None:
    assert kept.baseline
    [plots] = [
        part for part in tfma.load_plots(evaluation.uri) if not part.slice_key.single_slice_keys
    ]
    matrices = {
        item.key.model_name: item.value.multi_class_confusion_matrix_at_thresholds.matrices[0]
        for item in plots.plot_keys_and_values
    }
    for name, model in ((CANDIDATE, kept.candidate), (BASELINE, kept.baseline)):
        result = tfma.load_eval_result(evaluation.uri, model_name=name)
        assert len(result.slicing_metrics) == len(result.plots) == len(measured)
        cells = {
            (entry.actual_class_id, entry.predicted_class_id): entry.num_weighted_examples
            for entry in matrices[name].entries
        }
        pairs = np.stack([model.ids, model.probabilities.argmax(axis=1)])
        known, number = np.unique(pairs, axis=1, return_counts=True)
        assert cells == dict(zip(map(tuple, known.T.tolist()), number.tolist(), strict=True))
    validation = tfma.load_validation_result(evaluation.uri)
    assert not validation.validation_ok
    failed = {
        (failure.metric_key.name, failure.metric_key.is_diff)
        for part in validation.metric_validations_per_slice
        for failure in part.failures
    }
    assert failed == {("ece", False), ("accuracy", False)}
    assert len(validation.missing_slices) == 1
    checked = [part.slicing_spec for part in validation.validation_details.slicing_details]
    assert len(checked) > 3


def test_every_slicing_holds_every_example_once(measured: Found) -> None:
    counts: dict[str, dict[str, float]] = {}
    for (slicing, value), values in measured.items():
        counts.setdefault(slicing, {})[value] = values[CANDIDATE]["example_count"]
    assert counts == {
        "": {"": 120},
        "class": dict.fromkeys(LABELS, EACH),
        "size": {"under 32 px": 12, "32 to 63 px": 32, "64 to 127 px": 64, "128 to 255 px": 12},
        "luminance": {"under 64": 42, "64 to 127": 38, "not measured": 40},
        "format": {"jpeg": 90, "png": 30},
        "folder": {"camera 0": 60, "camera 1": 60},
    }


def test_the_predictions_are_kept(
    evaluation: types.Artifact, kept: Evaluated, predictions: Predictions
) -> None:
    # The number of an example is in its name.
    order = [int(name[-9:-4]) for name in kept.filenames]
    assert sorted(order) == list(range(len(LABELS) * EACH))
    np.testing.assert_array_equal(kept.candidate.ids, predictions.ids[order])
    np.testing.assert_allclose(
        kept.candidate.probabilities, predictions.probabilities[order], rtol=1e-5
    )
    assert kept.candidate.labels == LABELS
    assert kept.baseline
    assert kept.baseline.labels == LABELS[2::-1]
    texts = [(*kept.baseline.labels, "dog")[column] for column in kept.baseline.ids]
    assert texts == [LABELS[column] for column in kept.candidate.ids] == list(kept.slices["class"])
    assert kept.slices["format"].count("png") == EACH
    assert [file.name for file in Path(evaluation.uri).glob("*pred*")] == [PREDICTIONS_FILE]


def test_the_reasons_of_the_blessing(evaluation: types.Artifact, measured: Found) -> None:
    assert evaluation.get_string_custom_property(SPLIT_PROPERTY) == "test"
    assert evaluation.get_float_custom_property(MAJORITY_PROPERTY) == 0.25
    ece = measured[OVERALL][CANDIDATE]["ece"]
    recall = measured["class", "7"][CANDIDATE]["accuracy"]
    assert read_judgment(evaluation.uri).verdict.reasons[:3] == [
        f"calibration error {ece:.3f} is {ece - 0.001:.3f} above its threshold (0.001)",
        f"accuracy on class=7 {recall:.3f} is {0.999 - recall:.3f} below its threshold (0.999)",
        "format=gif has a threshold but no images",
    ]


def test_a_first_model_above_its_bounds(tmp_path: Path) -> None:
    predictions = make_predictions(LABELS[:3], each=EACH)
    examples = write_examples(tmp_path / "examples", "eval", predictions)
    model = Model(LABELS[:3]).save(tmp_path / "model")
    config = EvaluationConfig(thresholds=[Threshold("auc", at_least=0.5)])
    evaluation, blessing = evaluate(tmp_path, examples, model, config=config)
    assert blessing.get_int_custom_property("blessed")
    assert [file.name for file in Path(blessing.uri).iterdir()] == ["BLESSED"]
    accuracy = (predictions.probabilities.argmax(axis=1) == predictions.ids).mean()
    assert read_judgment(evaluation.uri).verdict.reasons == [
        f"accuracy {accuracy:.3f} is above the majority-class baseline (0.333)",
        "1 more threshold is met",
        "there is no current model to compare with",
    ]
    assert tfma.load_validation_result(evaluation.uri).validation_ok
    result = tfma.load_eval_result(evaluation.uri)
    assert len(result.slicing_metrics) == len(result.plots) > 5


class Turned(Model):
    """Serves other predictions than those that are evaluated."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def serving_default(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        predicted = Model.serving_default.python_function(self, image_bytes)
        return {**predicted, "probabilities": predicted["probabilities"][:, ::-1]}


def test_a_model_behind_the_model_in_use_that_serves_others_than_evaluated(tmp_path: Path) -> None:
    predictions = make_predictions(("a", "b"), each=40)
    examples = write_examples(tmp_path / "examples", "eval", predictions)
    in_use = Model(("a", "b")).save(tmp_path / "in_use")
    turned = Turned(("b", "a")).save(tmp_path / "turned")
    evaluation, blessing = evaluate(tmp_path, examples, turned, baseline=in_use)
    assert not blessing.get_int_custom_property("blessed")
    assert [file.name for file in Path(blessing.uri).iterdir()] == ["NOT_BLESSED"]
    right = (predictions.probabilities.argmax(axis=1) == predictions.ids).mean()
    verdict = read_judgment(evaluation.uri).verdict
    assert verdict.outcome == "refused"
    assert verdict.headline.endswith(": the exported model failed its smoke test.")
    smoke, *reasons, numbers = verdict.reasons
    assert "predictions for 8 of 8 images differ" in smoke
    assert numbers.startswith("accuracy on the same images: ")
    assert reasons == [
        f"accuracy {1 - right:.3f} is {right - 0.5:.3f} below the majority-class baseline (0.500)",
        f"accuracy is {2 * right - 1:.3f} below that of the current model; at most 0.02 is allowed",
    ]
    validation = tfma.load_validation_result(evaluation.uri)
    [failures] = [part.failures for part in validation.metric_validations_per_slice]
    assert [(part.message, part.metric_key.is_diff) for part in failures] == [
        (reasons[0], False),
        (reasons[1], True),
    ]


def test_the_smoke_test_can_load_all_of_tensorflow(
    predictions: Predictions, tmp_path: Path
) -> None:
    """As it does for a version whose parts cannot be imported without the rest."""
    model = Model(LABELS).save(tmp_path / "model")
    images, answer = tmp_path / "images", tmp_path / "found"
    probabilities = predictions.probabilities[:3].astype(np.float32)
    files = [base64.b64encode(np.log(row).tobytes()).decode() for row in probabilities]
    images.write_text(json.dumps(files))
    folder = f"{model.uri}/Format-Serving"
    arguments = ["--whole-tensorflow", folder, str(images), str(answer)]
    command = [sys.executable, str(fresh_process.__file__), *arguments]
    subprocess.run(command, check=True, capture_output=True)
    said = json.loads(answer.read_text())
    assert said["labels"] == list(LABELS)
    np.testing.assert_allclose(said["probabilities"], probabilities, atol=1e-6)
