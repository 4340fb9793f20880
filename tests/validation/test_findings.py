from __future__ import annotations

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components.validation.config import ValidationConfig
from components.validation.findings import Finding, explain_stop, list_findings

NEW_LABEL = Finding("eval", "image/class/text", "a new label", "anomaly")
MOVED = Finding("train", "image/height", "taller", "drift")


def test_each_reason_of_each_anomaly_is_a_finding() -> None:
    info = anomalies_pb2.AnomalyInfo
    anomalies = anomalies_pb2.Anomalies()
    anomalies.dataset_anomaly_info.description = "Too few."
    both = anomalies.anomaly_info["image/height"]
    both.reason.add(type=info.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH, description="Taller. ")
    both.reason.add(type=info.INT_TYPE_SMALL_INT, description="One is 3.")
    anomalies.anomaly_info["image/format"].description = "webp"
    assert list(list_findings(anomalies, "train")) == [
        Finding("train", "dataset", "Too few", "anomaly"),
        Finding("train", "image/format", "webp", "anomaly"),
        Finding("train", "image/height", "Taller", "drift"),
        Finding("train", "image/height", "One is 3", "anomaly"),
    ]


def test_the_configuration_decides_which_findings_stop_a_run() -> None:
    default, strict = ValidationConfig(), ValidationConfig(anomalies="warn", drift="stop")
    assert [finding.stops(default) for finding in (NEW_LABEL, MOVED)] == [True, False]
    assert [finding.stops(strict) for finding in (NEW_LABEL, MOVED)] == [False, True]


def test_a_stop_names_some_findings_and_the_ways_out() -> None:
    assert explain_stop([MOVED]) == (
        "The examples have changed: train: image/height: taller. If the change is intended, run "
        "once with --validation.drift warn."
    )
    text = explain_stop([NEW_LABEL] * 6 + [MOVED])
    assert text.startswith("The examples do not fit their schema: eval: image/class/text: a new")
    assert "| and 2 more. Correct the images" in text
    assert text.endswith("If the change is intended, run once with --validation.drift warn.")
