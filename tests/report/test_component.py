"""The artifacts of the report as Kubeflow shows them; `tests/test_pipeline.py` reads its files."""

import json
import re
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from tfx import types
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils

from components.contract.tfx_classes import ClassificationMetrics, Metrics
from components.metrics.classification_metrics import measure
from components.metrics.metric_table import METRICS
from components.metrics.predictions import Predictions
from components.report.component import ImageReport
from components.report.facts import MATRIX_CLASSES as MOST_CLASSES
from components.report.metrics_file import set_classification, set_metrics
from tests.evaluation.predictions_sample import make_predictions

NASTY = ("<script>alert(1)</script>", "\"quoted\" & 'so'", "日本語", "قطة")


def on_kubeflow(artifact: types.Artifact) -> dict[str, Any]:
    """Return the metadata that TFX's entrypoint passes to Kubeflow's launcher."""
    runtime = kubeflow_v2_entrypoint_utils.to_runtime_artifact(artifact, {})
    metadata: dict[str, Any] = json.loads(json_format.MessageToJson(runtime))["metadata"]
    return metadata


def check_confusion_matrix(matrix: dict[str, Any]) -> None:
    """The checks of `validateConfusionMatrix` in Kubeflow's frontend."""
    names = [spec["displayName"] for spec in matrix["annotationSpecs"]]
    assert all(isinstance(name, str) for name in names)
    assert len(matrix["rows"]) == len(names)
    for row in matrix["rows"]:
        assert len(row["row"]) == len(names)
        assert all(isinstance(count, int | float) for count in row["row"])


def test_a_split_that_lacks_a_class() -> None:
    predictions = make_predictions(NASTY, missing=(2,))
    artifact = ClassificationMetrics()
    set_classification(artifact, measure(predictions))
    metadata = on_kubeflow(artifact)
    check_confusion_matrix(metadata["confusionMatrix"])
    row = sorted(NASTY).index(NASTY[2])
    assert sum(metadata["confusionMatrix"]["rows"][row]["row"]) == 0


def test_the_matrix_shows_the_classes_with_most_mistakes_and_fits_mlmd() -> None:
    labels = tuple(f"class {number:02d} {'é' * 250}" for number in range(MOST_CLASSES + 10))
    ids = np.repeat(np.arange(len(labels)), 3)
    predicted = ids.copy()
    predicted[[0, 3]] = len(labels) - 1
    artifact = ClassificationMetrics()
    probabilities = np.eye(len(labels), dtype=np.float32)[predicted]
    set_classification(artifact, measure(Predictions(labels, ids, probabilities)))
    assert artifact.mlmd_artifact.ByteSize() < 2**18
    matrix = on_kubeflow(artifact)["confusionMatrix"]
    check_confusion_matrix(matrix)
    names = [spec["displayName"] for spec in matrix["annotationSpecs"]]
    # Without mistakes, the first ones.
    assert names == [*labels[: MOST_CLASSES - 1], labels[-1]]
    assert matrix["rows"][0]["row"] == [2, *[0] * (MOST_CLASSES - 2), 1]


@pytest.mark.parametrize(("each", "undefined"), [(20, set()), (0, {"auc"})])
def test_metrics_are_numbers_of_one_kind(each: int, undefined: set[str]) -> None:
    """Undefined metrics are left out: Kubeflow's API cannot represent them."""
    predictions = make_predictions(NASTY, each=each or 5, missing=() if each else (1, 2, 3))
    artifact = Metrics()
    set_metrics(artifact, measure(predictions))
    properties = artifact.mlmd_artifact.custom_properties
    assert properties.keys() == {*METRICS, "examples"} - undefined
    assert {value.WhichOneof("value") for value in properties.values()} == {"double_value"}


def test_kubeflow_recognizes_the_types() -> None:
    known = ImageReport.SPEC_CLASS.INPUTS
    inputs = {name: types.Channel(type=known[name].type) for name in known}
    outputs = ImageReport(pipeline="", code="", preview_fn="", **inputs).outputs
    titles = {
        name: re.search(r"title: (\S+)", compiler_utils.get_artifact_schema(channel.type))
        for name, channel in outputs.items()
    }
    assert {name: title and title[1] for name, title in titles.items()} == {
        "html": "system.HTML",
        "metrics": "system.Metrics",
        "classification": "system.ClassificationMetrics",
        "card": "system.Markdown",
        "suspects": "images.ImageSuspects",
    }
