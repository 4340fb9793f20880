"""Which images a split has, where they lie, and the content of its shards."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.contract.errors import DataError, StorageError
from components.contract.example import INDEX_FILE
from components.contract.progress import add_progress
from components.records.record_index import read_rows
from components.records.shard_files import read_counts
from components.storage.artifact_files import on_disk
from pipeline_def.data.sampler import Int64Array

# Mapped at the same time, in an order that goes from shard to shard and in one that does not; a
# process may keep about a thousand files open.
_OPEN_SHARDS = 64
_OPEN_SHARDS_AT_RANDOM = 512

# Shards of a bucket that are downloaded at the same time, and the size of a request.
_DOWNLOADS = 8
_DOWNLOAD_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Shards:
    """The transformed shards of one split."""

    uri: str
    """Path or URL of the Examples artifact."""
    split: str
    counts: dict[str, int]
    """Name of each shard's file → its records, in the order of the names."""

    @classmethod
    def of_pattern(cls, pattern: str) -> Shards:
        """Find the shards that `pattern`, `<artifact>/Split-<split>/*`, stands for.

        The artifact's own index names them, so that no folder is listed and no file asked for
        its size, which takes a request each in Cloud Storage.

        Raises:
            DataError: there is no index.
        """
        folder = os.path.dirname(pattern)
        uri, split = os.path.dirname(folder), os.path.basename(folder).removeprefix("Split-")
        try:
            counts = read_counts(uri, split)
        except FileNotFoundError as error:
            raise DataError(
                f"{uri} has no {INDEX_FILE}, so ImageTransform has not written these examples: "
                f"put it in the place of Transform."
            ) from error
        return cls(uri, split, counts)

    @property
    def paths(self) -> list[str]:
        """Paths of all shards."""
        return [os.path.join(self.uri, f"Split-{self.split}", name) for name in self.counts]

    @property
    def total(self) -> int:
        """Records in all shards."""
        return sum(self.counts.values())

    @property
    def local(self) -> bool:
        """Whether the shards are files that can be mapped into memory."""
        return on_disk(self.uri)


@dataclass(frozen=True)
class RecordTable:
    """Where each image lies; row i is record i of the split, shard after shard."""

    shard: npt.NDArray[np.int32]
    """Number of its shard."""
    offset: Int64Array
    """Position of its first byte in the shard."""
    length: Int64Array
    """Its size, bytes."""
    label: Int64Array
    """Its label id."""

    @classmethod
    def read(cls, shards: Shards) -> RecordTable:
        """Read the indexes that Transform wrote beside the shards.

        Raises:
            FileNotFoundError: there is none.
            StorageError: one is damaged.
        """
        tables = read_rows(shards.uri, shards.split, list(shards.counts))
        if [len(rows) for rows in tables] != list(shards.counts.values()):
            raise StorageError(
                f"{shards.uri}/{INDEX_FILE} counts other records than there are: remove the "
                f"output folder, and run again."
            )
        number = np.repeat(np.arange(len(tables), dtype=np.int32), [len(rows) for rows in tables])
        # A split may have no shards at all.
        return cls(number, *np.concatenate([np.empty((0, 3), np.int64), *tables]).T.copy())


def map_shards(paths: list[str], *, at_random: bool = False) -> Callable[[int], memoryview]:
    """Return a function that maps shard i into memory; only the latest ones stay mapped.

    Args:
        paths: of the shards.
        at_random: records of all shards are read at a time, not of few.
    """

    @functools.lru_cache(maxsize=_OPEN_SHARDS_AT_RANDOM if at_random else _OPEN_SHARDS)
    def open_shard(number: int) -> memoryview:
        with open(paths[number], "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if not at_random:
            # All of its records are about to be read, in whatever order: have the disk read ahead.
            mapped.madvise(mmap.MADV_WILLNEED)
        return memoryview(mapped)

    return open_shard


def load_shards(shards: Shards) -> list[memoryview]:
    """Read whole shards into memory."""
    import tensorflow as tf

    task = f"read {shards.uri} {shards.split}"

    def load(path: str, records: int) -> memoryview:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = b"".join(iter(functools.partial(file.read, _DOWNLOAD_BYTES), b""))
        add_progress(task, records, total=shards.total, unit="images read into memory")
        return memoryview(content)

    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        return list(pool.map(load, shards.paths, shards.counts.values()))
