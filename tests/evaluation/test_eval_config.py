from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow_model_analysis.proto import config_pb2
from tfx.types import standard_artifacts

from components.contract.properties import FOUND_PROPERTY
from components.evaluation.baseline_lookup import find_baseline
from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.executor import find_models, require_majority_accuracy
from components.evaluation.tfma.blessing import describe_thresholds
from components.evaluation.tfma.eval_config import make_eval_config
from tests.evaluation.saved_model_sample import saved_model


def test_no_baseline_on_a_first_run(tmp_path: Path) -> None:
    candidate = saved_model(tmp_path / "candidate", weights=b"new")
    assert find_baseline(str(tmp_path / "pushed"), str(candidate)) == ""


def test_the_newest_version_by_number(tmp_path: Path) -> None:
    candidate = saved_model(tmp_path / "candidate", weights=b"new")
    for version in ("99", "100", "notes"):
        saved_model(tmp_path / "pushed" / version, weights=version.encode())
    found = find_baseline(str(tmp_path / "pushed"), str(candidate))
    assert found == str(tmp_path / "pushed" / "100")


def test_the_candidate_is_not_its_own_baseline(tmp_path: Path) -> None:
    candidate = saved_model(tmp_path / "candidate", weights=b"new")
    saved_model(tmp_path / "pushed" / "1", weights=b"old")
    saved_model(tmp_path / "pushed" / "2", weights=b"new")
    found = find_baseline(str(tmp_path / "pushed"), str(candidate))
    assert found == str(tmp_path / "pushed" / "1")


def test_a_version_that_is_still_being_copied_is_left_out(tmp_path: Path) -> None:
    candidate = saved_model(tmp_path / "candidate", weights=b"new")
    saved_model(tmp_path / "pushed" / "1", weights=b"half", whole=False)
    assert find_baseline(str(tmp_path / "pushed"), str(candidate)) == ""


@pytest.mark.parametrize("found", [0, 1])
def test_evaluator_gets_a_baseline_only_if_there_is_one(found: int) -> None:
    baseline = standard_artifacts.Model()
    baseline.set_int_custom_property(FOUND_PROPERTY, found)
    inputs = {"model": [standard_artifacts.Model()], "baseline_model": [baseline]}
    assert find_models(inputs) == [*inputs["model"], *inputs["baseline_model"][:found]]


def thresholds(config: config_pb2.EvalConfig) -> list[config_pb2.PerSliceMetricThreshold]:
    return [
        threshold
        for specs in config.metrics_specs
        for metric in specs.metrics
        for threshold in metric.per_slice_thresholds
    ]


@pytest.mark.parametrize(("minimum", "majority", "bound"), [(0.0, 0.3, 0.3), (0.9, 0.3, 0.9)])
def test_no_model_below_the_majority_class_accuracy(
    minimum: float, majority: float, bound: float
) -> None:
    config = require_majority_accuracy(EvaluationConfig(min_accuracy=minimum), majority)
    [threshold] = thresholds(make_eval_config(config))
    assert threshold.threshold.value_threshold.lower_bound.value == bound


def test_thresholds_hold_for_all_examples_together_not_for_each_class() -> None:
    [threshold] = thresholds(make_eval_config(EvaluationConfig()))
    assert list(threshold.slicing_specs) == [config_pb2.SlicingSpec()]
    assert threshold.threshold.change_threshold.absolute.value == pytest.approx(-0.02)


def test_the_majority_class_accuracy_is_for_all_examples_only() -> None:
    more = [
        Threshold("accuracy", slice="class", at_least=0.1),
        Threshold("macro_f1", at_least=0.1),
        Threshold("accuracy", max_worsening=0.5),
    ]
    config = require_majority_accuracy(EvaluationConfig(thresholds=more), 0.3)
    assert describe_thresholds(make_eval_config(config)) == {
        "accuracy": "at least 0.3, at most 0.02 behind the model in use; at most 0.5 behind the "
        "model in use",
        "accuracy on class": "at least 0.1",
        "macro_f1": "at least 0.1",
    }


def test_lower_is_better_for_errors() -> None:
    more = [Threshold("ece", max_worsening=0.02), Threshold("auc", max_worsening=0.02)]
    _, auc, ece = thresholds(make_eval_config(EvaluationConfig(thresholds=more)))
    changes = [bounds.threshold.change_threshold for bounds in (auc, ece)]
    assert [change.absolute.value for change in changes] == [-0.02, 0.02]
    assert [change.direction for change in changes] == [
        config_pb2.MetricDirection.HIGHER_IS_BETTER,
        config_pb2.MetricDirection.LOWER_IS_BETTER,
    ]


@pytest.mark.parametrize("wanted", [False, True])
def test_auc_of_very_many_answers_only_if_a_threshold_is_for_it(wanted: bool) -> None:
    more = [Threshold("auc", at_least=0.9)] if wanted else []
    config = EvaluationConfig(thresholds=more)
    with_auc, config_of_many = (make_eval_config(config, with_auc=of) for of in (True, False))
    assert "auc" in str(with_auc)
    assert ("auc" in str(config_of_many)) == wanted
