"""Outputs of the two sets of versions: equal shards, and a run on the output of the other set.

`.ci/trixie` runs the digits with each set, and then these among the fast tests with the newer one.
"""

import filecmp
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.metrics.prediction_file import read_predictions

ROOT = Path(__file__).parents[2]
# The outputs of two runs: `old` with Python 3.11, and `new` with a later one.
MADE = Path(os.environ.get("TWO_SETS", "/nowhere"))
THERE = MADE / ("new" if sys.version_info < (3, 12) else "old")

pytestmark = pytest.mark.skipif("TWO_SETS" not in os.environ, reason="needs runs by .ci/trixie")

PLACES = ["ImageExampleGen/examples/1", "Transform/transformed_examples/6"]


@pytest.mark.parametrize("place", PLACES)
def test_both_sets_write_the_same_shards(place: str) -> None:
    old, new = (MADE / version / "artifacts" / place for version in ("old", "new"))
    names = [
        sorted(path.relative_to(at) for path in at.glob("Split-*/*-of-*")) for at in (old, new)
    ]
    assert names[0] == names[1] != []
    files = [*map(str, names[0])]
    assert filecmp.cmpfiles(old, new, files, shallow=False) == (files, [], [])
    indexes = [json.loads((at / "index.json").read_text()) for at in (old, new)]
    # Names the libraries, so that another set takes over no shards.
    made_by = [index.pop("made_by", None) for index in indexes]
    assert indexes[0] == indexes[1]
    assert made_by == [None, None] or made_by[0] != made_by[1]


def test_a_run_goes_on_with_an_output_folder_of_the_other_set() -> None:
    """All steps run again; the model pushed by the other set is the current model."""
    before = summary()
    # By 0.02, the default, 177 images cannot show that a model is no worse.
    options = ["--sample", "--output", str(THERE), "--evaluation.max_accuracy_drop", "0.05"]
    done = subprocess.run(
        [sys.executable, "local_runner.py", *options], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    after = summary()
    assert not any(node["cached"] for node in after["nodes"].values())
    assert after["baseline"]["version"] == Path(before["pushed_model"]).name
    assert after["outcome"] == "blessed"
    there, here = (read_predictions(facts["paths"]["evaluation"]) for facts in (before, after))
    assert here.baseline
    assert here.filenames == there.filenames
    np.testing.assert_allclose(
        here.baseline.probabilities, there.candidate.probabilities, atol=1e-5
    )


def summary() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((THERE / "summary.json").read_text())
    return facts
