from __future__ import annotations

import math

import pytest
from tensorflow_metadata.proto.v0 import schema_pb2

from components.contract.example import HEIGHT, LABEL
from components.validation.anomalies import Reference, raise_thresholds
from components.validation.feature_statistics import Statistics


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
    ("here", "there", "difference", "divergence"),
    [
        # Four standard errors of a half; more than 1 is never reached.
        (count(cat=50, dog=50), count(cat=50, dog=50), 4 * math.sqrt(0.25 * 0.02), 0.158),
        (count(cat=3, dog=3), count(cat=3, dog=3), 1.0, 1.0),
        # A label of 1 % varies less than one of a half.
        (count(cat=990, dog=10), count(cat=990, dog=10), 0.1, 0.1),
        (count(cat=10**5), count(cat=10**5), 0.1, 0.1),
    ],
)
def test_thresholds_are_above_what_chance_makes(
    here: Statistics, there: Statistics, difference: float, divergence: float
) -> None:
    schema = schema_pb2.Schema()
    schema.feature.add(name=LABEL).skew_comparator.infinity_norm.threshold = 0.1
    comparator = schema.feature.add(name=HEIGHT).skew_comparator
    comparator.jensen_shannon_divergence.threshold = 0.1
    label, height = raise_thresholds(schema, here, Reference("skew", "in train", there)).feature
    assert label.skew_comparator.infinity_norm.threshold == pytest.approx(difference)
    found = height.skew_comparator.jensen_shannon_divergence.threshold
    assert found == pytest.approx(divergence, abs=1e-3)
    assert schema.feature[0].skew_comparator.infinity_norm.threshold == 0.1
