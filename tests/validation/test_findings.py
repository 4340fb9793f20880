"""The configuration, thresholds and findings."""

import math
from typing import Any

import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

from components.contract.anomalies import Anomaly, list_anomalies
from components.contract.errors import ConfigurationError
from components.contract.example import HEIGHT, LABEL
from components.validation.anomalies import Reference, raise_thresholds
from components.validation.config import ValidationConfig
from components.validation.gate import explain_stop
from components.validation.tfdv_files import Statistics

NEW_LABEL = Anomaly("eval", "image/class/text", "a new label", "anomaly")
MOVED = Anomaly("train", "image/height", "taller", "drift")


def test_each_reason_of_each_anomaly_is_a_finding() -> None:
    info = anomalies_pb2.AnomalyInfo
    anomalies = anomalies_pb2.Anomalies()
    anomalies.dataset_anomaly_info.description = "Too few."
    both = anomalies.anomaly_info["image/height"]
    both.reason.add(type=info.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH, description="Taller. ")
    both.reason.add(type=info.INT_TYPE_SMALL_INT, description="One is 3.")
    anomalies.anomaly_info["image/format"].description = "webp"
    assert list(list_anomalies(anomalies, "train")) == [
        Anomaly("train", "dataset", "Too few", "anomaly"),
        Anomaly("train", "image/format", "webp", "anomaly"),
        Anomaly("train", "image/height", "Taller", "drift"),
        Anomaly("train", "image/height", "One is 3", "anomaly"),
    ]


def test_a_stop_names_some_findings_and_the_ways_out() -> None:
    assert explain_stop([MOVED]) == (
        "The examples have changed: train: image/height: taller. If the change is intended, run "
        "once with --validation.drift warn."
    )
    text = explain_stop([NEW_LABEL] * 6 + [MOVED])
    assert text.startswith("The examples do not fit their schema: eval: image/class/text: a new")
    assert "| and 2 more. Correct the images" in text
    assert text.endswith("If the change is intended, run once with --validation.drift warn.")


def test_limits_and_a_curated_schema_which_has_its_own_are_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"schema and .*max_label_drift are both"):
        ValidationConfig(schema="s.pbtxt", max_label_drift=0.2)
    assert ValidationConfig(schema="s.pbtxt", anomalies="warn", drift="stop").schema == "s.pbtxt"


def count(**labels: int) -> Statistics:
    """What TFDV says of so many images of each label."""
    statistics = Statistics()
    dataset = statistics.datasets.add(num_examples=sum(labels.values()))
    texts = dataset.features.add(path={"step": [LABEL]}).string_stats
    texts.unique = len(labels)
    for label, number in labels.items():
        texts.rank_histogram.buckets.add(label=label, sample_count=number)
    return statistics


@pytest.mark.parametrize(
    ("images", "difference", "divergence"),
    [
        # Four standard errors of a half; more than 1 is never reached.
        (count(cat=50, dog=50), 4 * math.sqrt(0.25 * 0.02), 0.158),
        (count(cat=3, dog=3), 1.0, 1.0),
        # A label of 1 % varies less than one of a half.
        (count(cat=990, dog=10), 0.1, 0.1),
        (count(cat=10**5), 0.1, 0.1),
    ],
)
def test_thresholds_are_above_chance(images: Any, difference: float, divergence: float) -> None:
    schema = schema_pb2.Schema()
    schema.feature.add(name=LABEL).skew_comparator.infinity_norm.threshold = 0.1
    comparator = schema.feature.add(name=HEIGHT).skew_comparator
    comparator.jensen_shannon_divergence.threshold = 0.1
    label, height = raise_thresholds(schema, images, Reference("skew", "in train", images)).feature
    assert label.skew_comparator.infinity_norm.threshold == pytest.approx(difference)
    threshold = height.skew_comparator.jensen_shannon_divergence.threshold
    assert threshold == pytest.approx(divergence, abs=1e-3)
    assert schema.feature[0].skew_comparator.infinity_norm.threshold == 0.1
