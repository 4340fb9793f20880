"""Copies with other labels or in other splits, found by ingest and by features."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.contract.image_tables import SUSPECTS_FILE, read_suspects, write_suspects
from components.metrics.predictions import Evaluated, Predictions
from components.report.shown import Without
from components.report.suspects import copies
from components.report.suspects.copies import (
    Copy,
    find_copies,
    find_leaked,
    list_suspects,
    read_copies,
)


def make_columns(images: int) -> dict[str, Any]:
    """Images of two labels, the last 20 for testing."""
    names = np.array([f"{n}.jpg" for n in range(images)], object)
    return {
        "path": names,
        "sha256": names.copy(),
        "fold": np.full(images, -1),
        "label": np.array(["cat", "dog"] * images, object)[:images],
        "split": np.array(["train"] * (images - 20) + ["test"] * 20, object),
    }


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


def test_copies_with_other_labels_or_splits_are_suspects(rejects: str, tmp_path: Path) -> None:
    columns = make_columns(40)
    lines = ""
    for paths, labels, splits in (
        (["0.jpg", "1.jpg"], ["cat", "dog"], ["train"]),
        (["2.jpg", "38.jpg"], ["cat"], ["test", "train"]),
        (["4.jpg", "6.jpg"], ["cat"], ["train"]),
    ):
        columns["sha256"][np.isin(columns["path"], paths)] = paths[0]
        line = {"sha256": "", "paths": paths, "labels": labels, "splits": splits}
        lines += f"{json.dumps(line)}\n"
    Path(rejects, "duplicates.jsonl").write_text(lines)
    suspects = list_suspects(read_copies(rejects, columns), decided={"2"})
    assert [(suspect.path, suspect.neighbors, round(suspect.score, 2)) for suspect in suspects] == [
        ("0.jpg", ("1.jpg",), 1.0),
        ("1.jpg", ("0.jpg",), 1.0),
        ("38.jpg", ("2.jpg",), 1.0),
        ("a", ("c",), 1.0),
        ("c", ("a", "b"), 0.8),
    ]
    # An earlier version wrote no list.
    assert read_copies(str(tmp_path / "old"), columns) == []


def test_odd_names_make_a_table(tmp_path: Path) -> None:
    cluster = {
        "paths": [os.fsdecode(b"caf\xe9/%d.jpg" % number) for number in range(9)],
        "labels": [str(number % 2) for number in range(9)],
        "splits": ["train"] * 9,
        "sha256": [f"{number}" for number in range(9)],
        "likeness": [0.9] * 9,
    }
    (tmp_path / "near_duplicates.jsonl").write_text(json.dumps(cluster) + "\n")
    suspects = list_suspects(read_copies(str(tmp_path), make_columns(30)))
    twins = tuple(rf"caf\xe9/{number}.jpg" for number in (1, 3, 5))
    assert (suspects[0].path, suspects[0].neighbors) == (r"caf\xe9/0.jpg", twins)
    path = str(tmp_path / SUSPECTS_FILE)
    write_suspects(path, suspects)
    assert len(read_suspects(path)) == 9


def test_accuracy_is_measured_with_and_without_leaked_images(rejects: str) -> None:
    groups = read_copies(rejects, make_columns(30))
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.2, 0.8]], np.float32)
    predictions = Predictions(("cat", "dog"), np.array([0, 0, 1, 1]), probabilities)
    evaluated = Evaluated(("b", "c", "e", "f"), {}, predictions)
    assert Without.of(evaluated, find_leaked(groups, "test")) == Without(2, 0.75, 0.5)
    assert Without.of(evaluated, set()) == Without(0, 0.75, 0.75)
    assert find_leaked(groups, "test", trained=("eval",)) == set()
    assert find_leaked(groups, "eval") == find_leaked(groups, "train") == set()


def test_copies_of_another_label_or_split_are_close_for_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random, columns = np.random.default_rng(0), make_columns(300)
    # Of half the images, any two are as similar as copies of the others.
    features = np.ones((300, 64)) + random.normal(0, np.repeat([0.2, 2.0], 150)[:, None], (300, 64))
    for copy, image in ((290, 200), (201, 204), (240, 242), (20, 31)):
        scale = 0.02 if image < 150 else 0.2
        features[copy] = features[image] + random.normal(0, scale, 64)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    groups = find_copies(columns, features.astype(np.float16))
    pairs = [tuple(copy.path for copy in pair) for pair in groups]
    assert pairs == [("20.jpg", "31.jpg"), ("200.jpg", "290.jpg"), ("201.jpg", "204.jpg")]
    assert [copy[1:4] for copy in groups[1]] == [
        ("cat", "train", "200.jpg"),
        ("cat", "test", "290.jpg"),
    ]
    suspects = {suspect.path: suspect.neighbors for suspect in list_suspects(groups)}
    assert suspects.pop("290.jpg") == ("200.jpg",)
    assert sorted(suspects) == ["20.jpg", "201.jpg", "204.jpg", "31.jpg"]
    # Every third image is compared with all others.
    monkeypatch.setattr(copies, "_MOST_PAIRS", 300**2 // 3)
    groups = find_copies(columns, features.astype(np.float16))
    assert [copy.path for pair in groups for copy in pair] == ["201.jpg", "204.jpg"]
    assert find_copies(make_columns(10), features[:10]) == []


def test_copies_in_different_folds_are_leaked() -> None:
    random, columns = np.random.default_rng(0), make_columns(60)
    features = random.normal(size=(60, 64))
    features[[1, 5]] = features[[3, 7]] + random.normal(0, 0.02, (2, 64))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    columns["split"][:] = "train"
    assert find_copies(columns, features) == []
    columns["fold"][:] = 0
    columns["fold"][3] = 1
    [pair] = find_copies(columns, features)
    assert find_leaked([pair], "2 folds", trained=("train", "eval")) == {"1.jpg", "3.jpg"}
    suspects = list_suspects([pair])
    assert [(suspect.path, suspect.neighbors) for suspect in suspects] == [
        ("1.jpg", ("3.jpg",)),
        ("3.jpg", ("1.jpg",)),
    ]


def test_a_cluster_that_ingest_left_apart_is_leaked_between_folds(rejects: str) -> None:
    columns = make_columns(30)
    columns["path"][:4], columns["fold"][:4] = ["a", "b", "c", "e"], [0, 0, 1, 1]
    groups = read_copies(rejects, columns)
    assert find_leaked(groups, "2 folds") == {"a", "b", "c", "d"}
    columns["fold"][:] = 0
    assert find_leaked(read_copies(rejects, columns), "2 folds") == set()


def test_an_image_has_the_copies_of_both_lists(rejects: str) -> None:
    pair = [Copy("a", "cat", "train", "1", -1, 0.9), Copy("e", "cat", "test", "5", -1, 0.9)]
    suspects = list_suspects([pair, *read_copies(rejects, make_columns(30))])
    assert [(suspect.path, suspect.neighbors) for suspect in suspects] == [
        ("e", ("a",)),
        ("a", ("c",)),
        ("b", ("a", "c")),
        ("c", ("a", "b")),
    ]
