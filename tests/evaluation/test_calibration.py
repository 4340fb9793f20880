from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from components.evaluation.metrics.calibration import undo_scaling
from components.evaluation.metrics.classification_metrics import measure
from tests.evaluation.predictions_sample import draw_predictions


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_what_a_model_would_answer_without_its_temperature(temperature: float) -> None:
    plain = draw_predictions([200, 200, 100])
    scaled = draw_predictions([200, 200, 100], sharpness=1 / temperature)
    found = undo_scaling(scaled, temperature=temperature, images=80)
    expected = measure(plain).scalars
    assert (found.temperature, found.images) == (temperature, 80)
    assert found.ece == pytest.approx(expected["ece"], abs=1e-5)
    assert found.loss == pytest.approx(expected["loss"], rel=1e-4)


def test_probabilities_of_zero() -> None:
    sure = draw_predictions([5, 5])
    rows = np.eye(2, dtype=np.float32)[sure.ids]
    found = undo_scaling(replace(sure, probabilities=rows), temperature=2.0, images=10)
    assert found.ece == pytest.approx(0, abs=1e-6)
    assert np.isfinite(found.loss)
