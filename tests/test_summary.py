from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow_model_analysis.proto import validation_result_pb2
from tfx import types
from tfx.types import standard_artifacts

from components.image_evaluator import ACCURACY, FLOOR_PROPERTY
from pipeline_def.config import Config, EvaluationConfig
from pipeline_def.summary import _explain

Result = validation_result_pb2.ValidationResult


def evaluation(folder: Path, *, failures: list[bool]) -> types.Artifact:
    """TFMA's verdict with a failure per entry, of the change (True) or of the value (False)."""
    result = Result(validation_ok=not failures)
    overall = result.metric_validations_per_slice.add()
    for is_diff in failures:
        overall.failures.add().metric_key.is_diff = is_diff
    with tf.io.TFRecordWriter(str(folder / "validations.tfrecord")) as writer:
        writer.write(result.SerializeToString())
    artifact = standard_artifacts.ModelEvaluation()
    artifact.uri = str(folder)
    artifact.set_float_custom_property(FLOOR_PROPERTY, 0.4)
    return artifact


CASES = {
    "first model": (
        ([], 0.9, None, 0.0),
        "accuracy 0.900 reaches 0.400, the share of the most frequent class; no model in use to "
        "compare with",
    ),
    "better than the model in use": (
        ([], 0.9, 0.85, 0.7),
        "accuracy 0.900 reaches 0.700, min_accuracy; the model in use has 0.850",
    ),
    "useless": (
        ([False], 0.3, None, 0.0),
        "accuracy 0.300 is below 0.400, the share of the most frequent class",
    ),
    "below what was asked for": (
        ([False], 0.6, None, 0.7),
        "accuracy 0.600 is below 0.700, min_accuracy",
    ),
    "worse than the model in use": (
        ([True], 0.8, 0.85, 0.0),
        "accuracy 0.800 is 0.050 below the model in use, more than 0.01",
    ),
    "both": (
        ([False, True], 0.6, 0.85, 0.7),
        "accuracy 0.600 is 0.250 below the model in use, more than 0.01; accuracy 0.600 is below "
        "0.700, min_accuracy",
    ),
}


@pytest.mark.parametrize(("case", "words"), CASES.values(), ids=CASES.keys())
def test_blessing_in_words(
    tmp_path: Path, case: tuple[list[bool], float, float | None, float], words: str
) -> None:
    failures, accuracy, baseline, minimum = case
    said = _explain(
        evaluation(tmp_path, failures=failures),
        {ACCURACY: accuracy},
        None if baseline is None else {ACCURACY: baseline},
        Config(evaluation=EvaluationConfig(min_accuracy=minimum)),
    )
    assert said == words
