import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from components.evaluation.smoke_test import SmokeTest, explain_difference
from components.metrics.predictions import Evaluated, Predictions

PROBABILITIES = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]], np.float32)
EVALUATED = Evaluated(
    filenames=("a", "b", "c"),
    slices={},
    candidate=Predictions(("x", "y"), np.array([0, 1, 1]), PROBABILITIES),
    baseline=None,
)
# Of the images b and a.
RIGHT = [[0.2004, 0.7996], [0.7, 0.3]]
CASES: dict[str, tuple[list[str], Any, str]] = {
    "as evaluated": (["x", "y"], RIGHT, ""),
    "labels in another order": (["y", "x"], RIGHT, "other labels"),
    "other weights": (["x", "y"], [[0.2, 0.8], [0.5, 0.5]], "1 of 2 .* such as for a: .* by 0.200"),
    "not a number": (["x", "y"], [[float("nan"), 0.8], [0.7, 0.3]], "1 of 2 .* such as for b"),
    "a missing prediction": (["x", "y"], RIGHT[:1], "1 predictions for 2 images"),
}


@pytest.mark.parametrize(("labels", "answer", "expected"), CASES.values(), ids=CASES)
def test_predictions_are_those_of_the_evaluation(
    labels: list[str], answer: Any, expected: str
) -> None:
    failure = explain_difference({"labels": labels, "probabilities": answer}, ["b", "a"], EVALUATED)
    assert bool(failure) == bool(expected)
    assert re.search(expected, failure)


@pytest.mark.slow
def test_broken_and_slow_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {*psutil.Process().children()}
    with SmokeTest(str(tmp_path), {"a": b""}, seconds=60) as broken:
        said = broken.find_failure(lambda _: EVALUATED)
        assert "cannot be loaded and run: OSError: SavedModel file" in said
        # A full disk is not the fault of the model.
        with monkeypatch.context() as full:
            full.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
            with pytest.raises(OSError, match="No space"):
                broken.find_failure(lambda _: EVALUATED)
    with SmokeTest(str(tmp_path), {"a": b""}, seconds=0.01) as slow:
        assert "no predictions within 0.01 s" in slow.find_failure(lambda _: EVALUATED)
    with SmokeTest(str(tmp_path), {"a": b""}, seconds=0.01) as busy:
        busy._started -= 60  # As if the evaluation had taken a minute.
        assert "cannot be loaded" in busy.find_failure(lambda _: EVALUATED)
    assert {*psutil.Process().children()} <= before
    with SmokeTest(str(tmp_path), {}, seconds=60) as none:
        assert none.find_failure(lambda _: EVALUATED) == ""
