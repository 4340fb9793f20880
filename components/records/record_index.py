"""Where each image lies in its shard: a small file per shard, so that readers do not parse records.

Transform writes them; training looks images up in them.
"""

import io
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from components.contract.artifact_files import make_folders, on_disk, open_file, reading
from components.contract.example import ENCODED, LABEL_ID
from components.records.shard_files import open_shard
from components.records.tfrecord import HEADER_BYTES, serialize

# Not in the split folders, where TFX takes every file for a shard.
FOLDER = "records"

# Reading small files from a bucket is mostly waiting.
_REQUESTS = 32
# Parsing headers of NumPy in several threads fails now and then in Python 3.11 (RecursionError).
_PARSING = threading.Lock()

Rows = npt.NDArray[np.int64]
"""int64 [records, 3]: offset and length of the image in the shard, bytes; label id."""


def index_path(examples_uri: str, split: str, shard: str) -> str:
    """Return the path of the index of `shard`, a file name."""
    return os.path.join(examples_uri, FOLDER, split, f"{shard}.npy")


def write_indexed_shard(
    examples_uri: str, split: str, shard: str, examples: Iterable[Mapping[str, Any]]
) -> int:
    """Write a shard and its index; return the number of records.

    The features of each record include `image/encoded` and `image/class/label`.
    """
    rows = []
    with open_shard(os.path.join(examples_uri, f"Split-{split}", shard)) as writer:
        for features in examples:
            record = serialize(features)
            rows.append(_row(writer.position + HEADER_BYTES, record, features))
            writer.write(record)
    path = index_path(examples_uri, split, shard)
    make_folders(os.path.dirname(path))
    with open_file(path, "wb") as file:
        np.save(file, np.array(rows, np.int64).reshape(-1, 3))
    return len(rows)


def _row(start: int, record: list[bytes], features: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the row of a record whose data begin at `start`."""
    image = features[ENCODED]
    for part in record:
        if part is image:
            return start, len(image), features[LABEL_ID]
        start += len(part)
    raise AssertionError("serialize() keeps the image as a part of its own")


def read_rows(examples_uri: str, split: str, shards: list[str]) -> list[Rows]:
    """Read the indexes of `shards`, file names, in this order.

    Raises:
        FileNotFoundError: a shard has no index, as another writer than our Transform wrote it.
        StorageError: an index is damaged, or its shard is missing or too short.
    """
    paths = [index_path(examples_uri, split, shard) for shard in shards]
    files = [os.path.join(examples_uri, f"Split-{split}", shard) for shard in shards]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(_load, paths, files))


def _load(path: str, shard: str) -> Rows:
    """Read an index, and compare it with the size of `shard` if that is on disk."""
    with open_file(path, "rb") as file:
        content = file.read()
    with reading(path):
        with _PARSING:
            rows: Rows = np.load(io.BytesIO(content), allow_pickle=False)
        if rows.dtype != np.int64 or rows.shape[1:] != (3,):
            raise ValueError(f"it holds {rows.dtype} of shape {rows.shape}")
        ends, most = rows[:, 0] + rows[:, 1], _size(shard)
        if (rows[:, :2] < 0).any() or (ends < 0).any() or (ends > most).any():
            raise ValueError("an image lies outside of its shard")
    return rows


def _size(shard: str) -> float:
    """Return the bytes of a shard on disk; 0 if it is missing, infinity for a URL."""
    if not on_disk(shard):
        return np.inf
    return os.path.getsize(shard) if os.path.exists(shard) else 0
