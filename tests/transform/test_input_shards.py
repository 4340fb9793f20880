"""Examples of other ExampleGens: which shards there are, and the index that is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.contract.example import ENCODED, LABEL, LABEL_ID
from components.records.record_index import write_indexed_shard
from components.records.record_reader import read_features
from components.records.shard_files import write_index
from components.transform.input_shards import (
    describe_shards,
    find_index,
    find_shards,
    transformed_name,
    write_labels,
)

LABELS = ["cat", "dog", "eel"]


def write(folder: Path, split: str, name: str, label_ids: list[int]) -> None:
    examples = [{ENCODED: b"image", LABEL_ID: label_id} for label_id in label_ids]
    write_indexed_shard(str(folder), split, name, examples)


def test_shards_of_another_example_gen_are_listed_and_described(tmp_path: Path) -> None:
    for split, shard in [("train", "a-0.gz"), ("train", "a-1.gz"), ("eval", "b.gz")]:
        (tmp_path / "given" / f"Split-{split}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "given" / f"Split-{split}" / shard).touch()
    given, made = str(tmp_path / "given"), tmp_path / "made"
    assert find_index(given) is None
    shards = find_shards(given, ["train", "eval"])
    assert shards == {"train": ["a-0.gz", "a-1.gz"], "eval": ["b.gz"]}
    write(made, "train", transformed_name("a-0.gz"), [0, 1, 0])
    write(made, "train", transformed_name("a-1.gz"), [1, 2])
    write(made, "eval", transformed_name("b.gz"), [1])
    index = describe_shards(str(made), shards, LABELS)
    assert index == {
        "splits": {"train": {"a-0": 3, "a-1": 2}, "eval": {"b": 1}},
        "labels": {"train": {"cat": 2, "dog": 2, "eel": 1}, "eval": {"dog": 1}},
    }
    write_index(str(made), index["splits"], labels=index["labels"])
    assert find_index(str(made)) == index


def test_a_label_that_training_does_not_know_ends_the_run(tmp_path: Path) -> None:
    write(tmp_path, "eval", "b", [0, -1, -1])
    with pytest.raises(DataError, match="2 images of split eval have a label that no image"):
        describe_shards(str(tmp_path), {"eval": ["b"]}, LABELS)


def test_labels_alone_are_examples_of_as_many_images(tmp_path: Path) -> None:
    write_labels(str(tmp_path), "train", {"cat": 2, "dög": 1})
    [shard] = (tmp_path / "Split-train").iterdir()
    labels = [bytes(found[LABEL.encode()]) for found in read_features(str(shard), [LABEL.encode()])]
    assert labels == [b"cat", b"cat", "dög".encode()]
