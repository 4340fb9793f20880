"""TFMA's files made from counts, held against those that TFMA itself writes, example by example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from apache_beam.options.pipeline_options import PipelineOptions
from tfx import types

from components.contract.example import ENCODED, LUMINANCE
from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.slices import describe_slices
from components.evaluation.tfma.eval_config import make_eval_config
from components.evaluation.tfma.result_files import resolve_config
from tests.evaluation.answers import Model, evaluate, write_examples
from tests.evaluation.predictions_sample import draw_predictions
from tests.nodes import IN_MEMORY

# Models are saved and loaded, and TFMA takes seconds.
pytestmark = [pytest.mark.xdist_group("evaluated"), pytest.mark.slow]

LABELS = ("cat", "7", "<b>|日本語", "dog", "nobody")
THRESHOLDS = [
    Threshold("ece", at_most=0.001, max_worsening=0.5),
    Threshold("accuracy", slice="class", at_least=0.7, max_worsening=0.1),
    Threshold("accuracy", slice="class=7", at_least=0.999),
    Threshold("accuracy", slice="format=gif", at_least=0.1),
    Threshold("auc", slice="luminance", at_least=0.1, max_worsening=0),
]


def add_slices(extracts: dict[str, Any]) -> dict[str, Any]:
    features = dict(extracts[tfma.FEATURES_KEY])
    features.pop(ENCODED)
    measured = features.get(LUMINANCE)
    if measured is None or not len(measured):
        features[LUMINANCE] = np.array([np.nan])
    for name, [value] in describe_slices(features).items():
        features[name] = np.array([value.encode("utf-8", "replace")], object)
    return {**extracts, "input": np.array([b""], object), tfma.FEATURES_KEY: features}


def analyse(
    folder: Path, examples: types.Artifact, models: list[types.Artifact], config: EvaluationConfig
) -> str:
    """Have TFMA do everything, with our metrics; return the folder of its files."""
    wanted = resolve_config(make_eval_config(config), compared=len(models) > 1)
    shared = [
        tfma.default_eval_shared_model(
            f"{model.uri}/Format-Serving", model_name=spec.name, eval_config=wanted
        )
        for model, spec in zip(models, wanted.model_specs, strict=True)
    ]
    shared = shared if len(shared) > 1 else shared[0]
    *first, slice_keys = tfma.default_extractors(eval_shared_model=shared, eval_config=wanted)
    ours = tfma.extractors.Extractor(stage_name="AddSlices", ptransform=beam.Map(add_slices))
    tfma.run_model_analysis(
        eval_shared_model=shared,
        eval_config=wanted,
        data_location=f"{examples.uri}/Split-test/*",
        output_path=str(folder),
        extractors=[*first, ours, slice_keys],
        pipeline_options=PipelineOptions(list(IN_MEMORY)),
    )
    return str(folder)


def read_metrics(folder: str) -> dict[str, dict[str, float]]:
    """Slice → key of the metric → value."""
    return {
        str(of.slice_key): {
            str(item.key): item.value.double_value.value for item in of.metric_keys_and_values
        }
        for of in tfma.load_metrics(folder)
    }


def read_plots(folder: str) -> dict[str, list[str]]:
    return {
        str(of.slice_key): sorted(str(item) for item in of.plot_keys_and_values)
        for of in tfma.load_plots(folder)
    }


def read_validation(folder: str) -> tuple[bool, list[str], list[str], list[str]]:
    """Numbers are left out: they are rounded in other places, and `read_metrics` has them."""
    found = tfma.load_validation_result(folder)
    failures = [
        f"{of.slice_key} {failure.metric_key} {failure.metric_threshold}"
        for of in found.metric_validations_per_slice
        for failure in of.failures
    ]
    checked = [str(of) for of in found.validation_details.slicing_details]
    missing = [str(of) for of in found.missing_slices]
    return found.validation_ok, sorted(failures), sorted(checked), sorted(missing)


@pytest.mark.parametrize("compared", [False, True], ids=["a first model", "against one in use"])
def test_the_files_are_those_that_tfma_writes(compared: bool, tmp_path: Path) -> None:
    predictions = draw_predictions([60, 40, 25, 3, 0])
    predictions = type(predictions)(LABELS, predictions.ids, predictions.probabilities)
    examples = write_examples(tmp_path / "examples", "test", predictions)
    model = Model(LABELS).save(tmp_path / "model")
    # It knows the classes in another order, and two of them not at all.
    in_use = Model(LABELS[2::-1], columns=len(LABELS)).save(tmp_path / "in_use")
    config = EvaluationConfig(min_accuracy=60 / 128, thresholds=THRESHOLDS)
    ours, _ = evaluate(
        tmp_path, examples, model, baseline=in_use if compared else None, config=config
    )
    models = [model, in_use] if compared else [model]
    theirs = analyse(tmp_path / "tfma", examples, models, config)

    expected = read_metrics(theirs)
    found = read_metrics(ours.uri)
    assert found.keys() == expected.keys()
    for place, values in expected.items():
        assert found[place] == pytest.approx(values, abs=1e-6, nan_ok=True), place
    assert read_plots(ours.uri) == read_plots(theirs)
    assert read_validation(ours.uri) == read_validation(theirs)
    names = {"candidate", "baseline"} if compared else {None}
    for name in names:
        result, wanted = (tfma.load_eval_result(at, model_name=name) for at in (ours.uri, theirs))
        assert result.config == wanted.config
        assert len(result.slicing_metrics) == len(wanted.slicing_metrics) > 10
        assert len(result.plots) == len(wanted.plots)
        assert len(result.attributions) == len(wanted.attributions)
