from typing import Any

import numpy as np
import pytest
from tensorflow_metadata.proto.v0 import schema_pb2

from components.contract.example import HEIGHT, LABEL, LUMINANCE
from components.validation.comparison import summarize
from components.validation.served import Images, compare_served, find_shift

LABELS = ("ant", "bee", "cat", "dog")


def draw(random: np.random.Generator, rows: int, *, dark: float = 0, new: float = 0) -> Images:
    """Draw images, with fractions of dark ones and of a class that the model does not know."""
    scores = random.dirichlet([0.2] * len(LABELS), rows)
    scores[: round(rows * new)] = random.dirichlet([0.1, 0.1, 3, 3], round(rows * new))
    brightness = random.normal(0.5, 0.1, rows)
    brightness[: round(rows * dark)] /= 2
    sizes = {HEIGHT: np.full(rows, 32.0), LUMINANCE: 255 * brightness}
    return Images(LABELS, scores, {"brightness_low": brightness}, sizes)


def test_unchanged_windows_raise_no_alarm_and_neither_do_judged_images_themselves() -> None:
    random = np.random.default_rng(0)
    judged = draw(random, 600)
    windows = [draw(random, 300) for _ in range(30)]
    alarms = [find_shift(window, judged, split="test", seed=0) for window in [judged, *windows]]
    assert not any(alarms)


@pytest.mark.parametrize(
    ("changes", "feature", "says"),
    [
        ({"dark": 0.2}, "brightness_low", "on average, in test"),
        ({"new": 0.2}, "probability of", "of test"),
    ],
)
def test_a_change_of_a_fifth_of_the_images_is_found(
    changes: dict[str, Any], feature: str, says: str
) -> None:
    random = np.random.default_rng(0)
    found = find_shift(draw(random, 500, **changes), draw(random, 1000), split="test", seed=0)
    assert found[0].feature.startswith(feature)
    assert says in found[0].text


def test_sizes_and_labels_have_the_thresholds_of_the_schema() -> None:
    random = np.random.default_rng(0)
    judged = draw(random, 1000)
    train = summarize({**judged.properties, HEIGHT: judged.properties[HEIGHT].astype(int)})
    schema = schema_pb2.Schema()
    for name, kind in ((HEIGHT, schema_pb2.INT), (LUMINANCE, schema_pb2.FLOAT)):
        comparator = schema.feature.add(name=name, type=kind).skew_comparator
        comparator.jensen_shannon_divergence.threshold = 0.3
        comparator.jensen_shannon_divergence.source.type = schema_pb2.HistogramSelection.QUANTILES
    label = schema.feature.add(name=LABEL, type=schema_pb2.BYTES).skew_comparator
    label.infinity_norm.threshold = 0.1

    def find(window: Images) -> dict[str, str]:
        found = compare_served(window, judged, split="test", schema=schema, train=train)
        return {one.feature: one.text for one in found}

    assert find(draw(random, 300)) == {}
    changed = find(draw(random, 300, dark=1, new=0.8))
    assert "in train" in changed[LUMINANCE]
    assert "the limit is 0.30" in changed[LUMINANCE]
    assert "among the predictions for test" in changed[LABEL]
    assert HEIGHT not in changed
