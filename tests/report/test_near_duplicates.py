import json
import os
from pathlib import Path

import numpy as np
import pytest

from components.contract.suspects import SUSPECTS_FILE, read_suspects, write_suspects
from components.metrics.predictions import Evaluated, Predictions
from components.report.shown import Leaks
from components.report.suspects.similar import find_mislabeled_copies, measure_leaks


@pytest.fixture
def rejects(tmp_path: Path) -> str:
    cluster = {
        "cluster": 1,
        "paths": ["a", "b", "c", "d"],
        "labels": ["cat", "cat", "dog", "dog"],
        "splits": ["train", "test", "test", None],
        "sha256": ["1", "2", "3", "4"],
        "likeness": [1.0, 0.9, 0.8, 0.7],
    }
    (tmp_path / "near_duplicates.jsonl").write_text(json.dumps(cluster) + "\n")
    return str(tmp_path)


def test_copies_with_other_labels_are_suspects(rejects: str, tmp_path: Path) -> None:
    found = find_mislabeled_copies(rejects, decided={"2"})
    assert [(one.path, one.neighbors, one.score) for one in found] == [
        ("a", ("c",), 1.0),
        ("c", ("a", "b"), 0.8),
    ]
    # An earlier version wrote no list.
    assert find_mislabeled_copies(str(tmp_path / "old")) == []


def test_large_clusters_and_odd_names_make_a_table(tmp_path: Path) -> None:
    count = 4_000
    cluster = {
        "paths": [os.fsdecode(b"caf\xe9/%d.jpg" % number) for number in range(count)],
        "labels": [str(number % 2) for number in range(count)],
        "splits": ["train"] * count,
        "sha256": [f"{number}" for number in range(count)],
        "likeness": [0.9] * count,
    }
    (tmp_path / "near_duplicates.jsonl").write_text(json.dumps(cluster) + "\n")
    found = find_mislabeled_copies(str(tmp_path))
    assert len(found) == count
    twins = tuple(rf"caf\xe9/{number}.jpg" for number in (1, 3, 5))
    assert (found[0].path, found[0].neighbors) == (r"caf\xe9/0.jpg", twins)
    path = str(tmp_path / SUSPECTS_FILE)
    write_suspects(path, found)
    assert len(read_suspects(path)) == count


def test_accuracy_is_measured_with_and_without_leaked_images(rejects: str) -> None:
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.2, 0.8]], np.float32)
    predictions = Predictions(("cat", "dog"), np.array([0, 0, 1, 1]), probabilities)
    evaluated = Evaluated(("b", "c", "e", "f"), {}, predictions)
    assert measure_leaks(rejects, evaluated, "test") == Leaks(2, 0.75, 0.5)
    both = ("train", "eval")
    assert measure_leaks(rejects, evaluated, "test", trained=both) == Leaks(2, 0.75, 0.5)
    assert measure_leaks(rejects, evaluated, "test", trained=("eval",)) is None
    assert measure_leaks(rejects, evaluated, "eval") is None
    assert measure_leaks(rejects, evaluated, "train") is None
