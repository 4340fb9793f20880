from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow_model_analysis as tfma
from tfx.types import standard_artifacts

from components.baseline import FOUND_PROPERTY, find_baseline
from components.image_evaluator import _without_empty_baseline, raise_accuracy_floor
from pipeline_def.config import EvaluationConfig
from pipeline_def.evaluation import make_eval_config


def saved_model(folder: Path, *, weights: bytes, whole: bool = True) -> Path:
    """What BaselineFinder looks at of a SavedModel."""
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "variables.index").write_bytes(weights)
    if whole:
        (folder / "saved_model.pb").write_bytes(b"graph")
    return folder


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
    assert ("baseline_model" in _without_empty_baseline(inputs)) == bool(found)


def thresholds(config: tfma.EvalConfig) -> list[tfma.PerSliceMetricThreshold]:
    return [
        threshold
        for specs in config.metrics_specs
        for metric in specs.metrics
        for threshold in metric.per_slice_thresholds
    ]


@pytest.mark.parametrize(("minimum", "floor", "bound"), [(0.0, 0.3, 0.3), (0.9, 0.3, 0.9)])
def test_no_model_below_the_share_of_the_most_frequent_class(
    minimum: float, floor: float, bound: float
) -> None:
    config = make_eval_config(EvaluationConfig(min_accuracy=minimum))
    raise_accuracy_floor(config, floor)
    [threshold] = thresholds(config)
    assert threshold.threshold.value_threshold.lower_bound.value == bound


def test_thresholds_hold_for_all_examples_together_not_for_each_class() -> None:
    [threshold] = thresholds(make_eval_config(EvaluationConfig()))
    assert list(threshold.slicing_specs) == [tfma.SlicingSpec()]
    assert threshold.threshold.change_threshold.absolute.value == pytest.approx(-0.01)
