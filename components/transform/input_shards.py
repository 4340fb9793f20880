"""The shards that Transform reads: ImageExampleGen's with their index, or those of any ExampleGen.

TFX's own ExampleGens write gzip files and no index; the one of the transformed shards is then made
from what Transform has written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from components.contract.errors import DataError
from components.contract.example import LABEL
from components.records.record_index import read_rows
from components.records.shard_files import open_shard, read_index, shard_path
from components.records.tfrecord import serialize
from components.storage.artifact_files import list_names

GZIP_SUFFIX = ".gz"

Shards = Mapping[str, Sequence[str]]
"""Split → names of its files."""


def find_index(examples_uri: str) -> dict[str, Any] | None:
    """Read the index that ImageExampleGen writes; None for examples of another component."""
    try:
        return read_index(examples_uri)
    except FileNotFoundError:
        return None


def find_shards(examples_uri: str, splits: Sequence[str]) -> Shards:
    """List the files of `splits`, as TFX's own ExampleGens write them."""
    return {split: list_names(os.path.join(examples_uri, f"Split-{split}")) for split in splits}


def write_labels(examples_uri: str, split: str, counts: Mapping[str, int]) -> None:
    """Write examples that are their labels alone, each as often as it is counted."""
    with open_shard(shard_path(examples_uri, split, 0, 1)) as writer:
        for label, count in counts.items():
            record = serialize({LABEL: label})
            for _ in range(count):
                writer.write(record)


def transformed_name(shard: str) -> str:
    """Name the transformed shard, which is not compressed, after the one that it is made of."""
    return shard.removesuffix(GZIP_SUFFIX)


def describe_shards(
    transformed_uri: str, shards: Shards, vocabulary: Sequence[str]
) -> dict[str, Any]:
    """Count the records of transformed shards, and the images of each label.

    Args:
        transformed_uri: of the transformed examples.
        shards: that were transformed.
        vocabulary: label of each label id.

    Returns:
        `splits` and `labels`, as ImageExampleGen's index has them.

    Raises:
        DataError: a label does not occur in the train split.
    """
    splits, labels = {}, {}
    for split, names in shards.items():
        written = [transformed_name(name) for name in names]
        rows = read_rows(transformed_uri, split, written)
        splits[split] = {name: len(of) for name, of in zip(written, rows, strict=True)}
        ids = np.concatenate([of[:, 2] for of in rows]) if rows else np.empty(0, np.int64)
        if unknown := int((ids < 0).sum()):
            raise DataError(
                f"{unknown:,} images of split {split} have a label that no image of split train "
                f"has: leave them out, or divide the images otherwise."
            )
        counts = np.bincount(ids, minlength=len(vocabulary)).tolist()
        labels[split] = {label: n for label, n in zip(vocabulary, counts, strict=True) if n}
    return {"splits": splits, "labels": labels}
