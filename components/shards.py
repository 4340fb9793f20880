"""Shards: which files go into which, how they are named and written, and the index of them all."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.example import INDEX_FILE
from components.ingest_config import IngestConfig
from components.listing import ImageFile
from components.tfrecord import RecordWriter

# The folder, next to the split folders, of what is still being written.
UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class ShardPlan:
    """The files of one unit of work, which writes one shard for each split they fall into.

    A plan, not an image, is what Beam moves between workers. Its content depends on the listing
    alone, so the shards are the same whatever the number of workers.
    """

    group: str
    """The split that the folder gives its files, or "hash"."""
    index: int
    count: int
    """Shards of every split that this group of files falls into."""
    files: tuple[ImageFile, ...]


def plan_shards(files: Iterable[ImageFile], config: IngestConfig) -> list[ShardPlan]:
    """Divide `files` into plans of about `config.shard_mib`, in the order of the paths' hashes.

    The order by hash mixes the classes, so that no shard holds one class only.
    """
    groups: dict[str | None, list[ImageFile]] = {}
    for file in files:
        groups.setdefault(file.split, []).append(file)
    if None in groups and groups.keys() - {None}:
        # Some splits are given, some follow from hashes: two groups would write the same shards.
        groups = {None: [file for group in groups.values() for file in group]}
    plans: list[ShardPlan] = []
    for split in sorted(groups, key=lambda name: name or ""):
        group = sorted(groups[split], key=path_hash)
        largest = 1.0 if split else max(config.splits.values())
        count = _shard_count(group, config, share=largest)
        bounds = [len(group) * i // count for i in range(count + 1)]
        plans += [
            ShardPlan(split or "hash", i, count, tuple(group[start:end]))
            for i, (start, end) in enumerate(itertools.pairwise(bounds))
        ]
    return plans


def path_hash(file: ImageFile) -> bytes:
    """Return what files are sorted by, so that the classes are mixed."""
    return hashlib.sha256(file.path.encode("utf-8", "surrogateescape")).digest()


def _shard_count(files: Sequence[ImageFile], config: IngestConfig, *, share: float) -> int:
    """Choose the number of plans whose shards of the largest split, a `share`, have the size."""
    size = sum(file.size for file in files) * share
    by_size = math.ceil(size / (config.shard_mib * 2**20))
    by_number = min(config.min_shards, len(files) // config.min_shard_images)
    return max(1, by_size, by_number)


def split_of(file: ImageFile, sha256: str, shares: Mapping[str, float]) -> str:
    """Choose the split of a file: the one given, or by the hash of its group or its content.

    The same content or group always falls into the same split, whatever other images there are.

    Args:
        file: as it was listed.
        sha256: of its content, hexadecimal.
        shares: split to its share of the images; the shares add up to 1.
    """
    if file.split is not None:
        return file.split
    if file.group is not None:
        sha256 = hashlib.sha256(file.group.encode("utf-8", "surrogateescape")).hexdigest()
    position = int(sha256[:13], 16) / 16**13
    for split, share in shares.items():
        position -= share
        if position < 0:
            return split
    return next(reversed(list(shares)))


def shard_path(examples_uri: str, split: str, index: int, count: int) -> str:
    """Name a shard, in TFX's folder of the split, by its number and the number of shards."""
    name = f"data_tfrecord-{index:05d}-of-{count:05d}"
    return os.path.join(examples_uri, f"Split-{split}", name)


@contextlib.contextmanager
def open_shard(path: str) -> Iterator[RecordWriter]:
    """Open an uncompressed TFRecord file for writing that appears whole, or not at all.

    JPEG bytes do not compress; gzip would cost CPU time in every epoch.
    """
    import tensorflow as tf

    # The unfinished file lies outside the split folder: readers take every file in there. Its
    # name is its own: distributed runners may have two workers write the same shard.
    split_folder, name = os.path.split(path)
    examples_uri, split = os.path.split(split_folder)
    unfinished = os.path.join(examples_uri, UNFINISHED, f"{split}-{name}-{uuid.uuid4().hex}")
    for folder in (split_folder, os.path.dirname(unfinished)):
        tf.io.gfile.makedirs(folder)
    with RecordWriter(unfinished) as writer:
        yield writer
    tf.io.gfile.rename(unfinished, path, overwrite=True)


def remove_shards(examples_uri: str) -> None:
    """Remove what an earlier attempt in the same place has left, finished or not."""
    import tensorflow as tf

    for pattern in (INDEX_FILE, "Split-*", UNFINISHED):
        for path in tf.io.gfile.glob(os.path.join(examples_uri, pattern)):
            (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)


def write_index(examples_uri: str, splits: Mapping[str, Mapping[str, int]], **facts: Any) -> None:
    """Write the number of records of every shard, by split, and `facts` next to the shards."""
    import tensorflow as tf

    tf.io.gfile.makedirs(examples_uri)
    index = {"splits": {s: dict(sorted(splits[s].items())) for s in sorted(splits)}, **facts}
    with tf.io.gfile.GFile(os.path.join(examples_uri, INDEX_FILE), "w") as file:
        file.write(json.dumps(index, indent=1, sort_keys=True))
    unfinished = os.path.join(examples_uri, UNFINISHED)
    if tf.io.gfile.exists(unfinished):
        tf.io.gfile.rmtree(unfinished)


def read_index(examples_uri: str) -> dict[str, Any]:
    """Read the index next to the shards, with `splits`: split → shard file name → records."""
    import tensorflow as tf

    with tf.io.gfile.GFile(os.path.join(examples_uri, INDEX_FILE)) as file:
        index: dict[str, Any] = json.loads(file.read())
    return index


def list_shards(examples_uri: str, split: str) -> list[str]:
    """Return the paths of the shards of a split, in the order of their numbers."""
    folder = os.path.join(examples_uri, f"Split-{split}")
    return [
        os.path.join(folder, name) for name in sorted(read_index(examples_uri)["splits"][split])
    ]


def count_examples(index: Mapping[str, Any]) -> dict[str, int]:
    """Add up the records of each split of an index."""
    return {split: sum(shards.values()) for split, shards in index["splits"].items()}
