"""Shards: their names, how they are written, and the index that counts their records."""

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from components.contract.artifact_files import (
    list_names,
    make_folders,
    move,
    on_disk,
    open_file,
    reading,
    remove,
)
from components.contract.errors import StorageError
from components.contract.example import INDEX_FILE, count_folds
from components.records.tfrecord import RecordWriter

UNFINISHED = ".unfinished"
"""Folder of shards being written, next to the split folders."""


PLANS = "plans"
"""Folder of what ingest knows of the files of each shard, next to the split folders."""


def shard_path(examples_uri: str, split: str, index: int, count: int) -> str:
    """Return the path of shard `index` of `count`, in TFX's folder of the split."""
    name = f"data_tfrecord-{index:05d}-of-{count:05d}"
    return os.path.join(examples_uri, f"Split-{split}", name)


@contextlib.contextmanager
def open_shard(path: str) -> Iterator[RecordWriter]:
    """Open an uncompressed TFRecord file for writing, which appears only when it is complete.

    JPEG bytes do not compress; gzip would cost CPU time in every epoch.
    """
    # Outside of the split folder, where readers take every file, and under a unique name, as
    # two workers of a distributed runner may write the same shard.
    split_folder, name = os.path.split(path)
    examples_uri, split = os.path.split(split_folder)
    unfinished = os.path.join(examples_uri, UNFINISHED, f"{split}-{name}-{uuid.uuid4().hex}")
    for folder in (split_folder, os.path.dirname(unfinished)):
        make_folders(folder)
    with RecordWriter(unfinished) as writer:
        yield writer
    move(unfinished, path)


def replace_file(examples_uri: str, path: str, content: bytes) -> None:
    """Write a file of the examples, on disk not in place: an earlier ingest may share it."""
    new = os.path.join(examples_uri, UNFINISHED, uuid.uuid4().hex) if on_disk(path) else path
    for folder in (os.path.dirname(new), os.path.dirname(path)):
        make_folders(folder)
    with open_file(new, "wb") as file:
        file.write(content)
    if new != path:
        move(new, path)


def remove_shards(examples_uri: str) -> None:
    """Remove the shards of an earlier attempt, finished or not."""
    for name in list_names(examples_uri):
        if name in (INDEX_FILE, PLANS, UNFINISHED) or name.startswith("Split-"):
            remove(os.path.join(examples_uri, name))


def write_index(examples_uri: str, splits: Mapping[str, Mapping[str, int]], **facts: Any) -> None:
    """Write the number of records of every shard, by split, and `facts` next to the shards."""
    make_folders(examples_uri)
    index = {"splits": {s: dict(sorted(splits[s].items())) for s in sorted(splits)}, **facts}
    with open_file(os.path.join(examples_uri, INDEX_FILE), "w") as file:
        file.write(json.dumps(index, indent=1, sort_keys=True))
    if UNFINISHED in list_names(examples_uri):
        remove(os.path.join(examples_uri, UNFINISHED))


def read_index(examples_uri: str) -> dict[str, Any]:
    """Read the index next to the shards, with `splits`: split → shard file name → records.

    Raises:
        FileNotFoundError: another component wrote the examples.
        StorageError: it is damaged.
    """
    path = os.path.join(examples_uri, INDEX_FILE)
    with open_file(path, "rb") as file:
        content = file.read()
    with reading(path):
        index: dict[str, Any] = json.loads(content)
        for counts in (*index["splits"].values(), *index.get("labels", {}).values()):
            if not all(isinstance(count, int) and count >= 0 for count in counts.values()):
                raise ValueError("a count is not a number")
        if not all(isinstance(value, int | None) for value in index.get("ingest", {}).values()):
            raise ValueError("ingest has a value that is not a number")
    return index


def find_earlier(examples_uri: str, name: str, value: str) -> str:
    """Return the newest complete output of the same step whose index has a fact; "" if none has.

    TFX numbers the outputs of a step: `examples/12`.
    """
    folder, own_number = os.path.split(examples_uri.rstrip("/"))
    if not own_number.isdigit():
        return ""
    for number in sorted(filter(str.isdigit, list_names(folder)), key=int, reverse=True):
        uri = os.path.join(folder, number)
        with contextlib.suppress(OSError, StorageError):
            if number != own_number and read_index(uri).get(name) == value:
                return uri
    return ""


def is_untouched(examples_uri: str, paths: Iterable[str]) -> bool:
    """Return whether files on disk are there, and not written since the index of the examples."""
    try:
        written, *times = (
            os.stat(path).st_mtime_ns for path in (os.path.join(examples_uri, INDEX_FILE), *paths)
        )
    except OSError:  # An earlier output may be in removal.
        return False
    return max(times) <= written


def read_counts(examples_uri: str, split: str) -> dict[str, int]:
    """Return the number of records of each shard of a split, in name order.

    Raises the errors of `read_index`.
    """
    splits = read_index(examples_uri)["splits"]
    with reading(os.path.join(examples_uri, INDEX_FILE)):
        if split not in splits:
            raise ValueError(f"it has no split {split!r}")
    return dict(sorted(splits[split].items()))


def list_shards(examples_uri: str, split: str) -> list[str]:
    """Return the paths of the shards of a split, or of all splits for folds, in name order."""
    splits = sorted(read_index(examples_uri)["splits"]) if count_folds(split) else [split]
    return [
        os.path.join(examples_uri, f"Split-{split}", name)
        for split in splits
        for name in read_counts(examples_uri, split)
    ]


def count_examples(index: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of records of each split of an index."""
    return {split: sum(shards.values()) for split, shards in index["splits"].items()}
