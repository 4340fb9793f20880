"""The shards of a split: how many records they hold, where each image lies, and their content."""

import functools
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from components.contract.artifact_files import on_disk
from components.contract.errors import DataError, StorageError
from components.contract.example import INDEX_FILE, sort_splits
from components.records.record_index import read_rows
from components.records.shard_files import read_counts, read_index
from components.trainer.input.sampler import Int64Array

# Shards mapped at the same time when reading shard after shard, and some shards at a time. The
# system counts what is mapped as memory of the process, even after training.
_OPEN_IN_ORDER, _OPEN_SHUFFLED = 4, 64


@dataclass(frozen=True)
class Shards:
    """The transformed shards of one split."""

    uri: str
    """Path or URL of the Examples artifact."""
    split: str
    counts: dict[str, int]
    """Records of each shard by file name, in name order."""
    rows: tuple[int, ...] | None = None
    """Numbers of the only records to read, by their indexes; None: all."""

    @classmethod
    def of_all_splits(cls, uri: str) -> list[Self]:
        """Return the shards of each split of an artifact, train first."""
        splits = sort_splits(read_index(uri)["splits"])
        return [cls(uri, split, dict(sorted(counts.items()))) for split, counts in splits.items()]

    @classmethod
    def of_pattern(cls, pattern: str) -> Self:
        """Find the shards that `pattern`, `<artifact>/Split-<split>/*`, matches.

        Their names come from the artifact's index, without listing folders or asking for file
        sizes, which takes a request each in Cloud Storage.

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
                f"use ImageTransform instead of Transform."
            ) from error
        return cls(uri, split, counts)

    @property
    def paths(self) -> list[str]:
        """Paths of all shards."""
        return [os.path.join(self.uri, f"Split-{self.split}", name) for name in self.counts]

    @property
    def total(self) -> int:
        """Records to read."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Records to read of each shard; chosen rows count as one shard."""
        return list(self.counts.values()) if self.rows is None else [len(self.rows)]

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
    """Offset in the shard, bytes."""
    length: Int64Array
    """Size, bytes."""
    label: Int64Array
    """Label id."""

    @classmethod
    def read(cls, shards: Shards) -> Self:
        """Read the record indexes that Transform wrote beside the shards.

        Raises:
            StorageError: one is missing or damaged.
        """
        try:
            tables = read_rows(shards.uri, shards.split, list(shards.counts))
        except FileNotFoundError:
            tables = []
        if [len(rows) for rows in tables] != list(shards.counts.values()):
            raise StorageError(
                f"The record indexes of {shards.uri} are missing or do not match the counts in its "
                f"{INDEX_FILE}: remove the output folder, and run again."
            )
        number = np.repeat(np.arange(len(tables), dtype=np.int32), [len(rows) for rows in tables])
        # A split may have no shards.
        columns = (number, *np.concatenate([np.empty((0, 3), np.int64), *tables]).T.copy())
        if shards.rows is None:
            return cls(*columns)
        rows = np.array(shards.rows, np.int64)
        return cls(*(column[rows] for column in columns))

    def look_up(self, records: Int64Array, open_shard: Callable[[int], Any]) -> list[Any]:
        """Return the images of records, slices of what `open_shard` returns for shard i."""
        starts = self.offset[records]
        ends = starts + self.length[records]
        shards = self.shard[records].tolist()
        opened = {shard: open_shard(shard) for shard in set(shards)}
        places = zip(shards, starts.tolist(), ends.tolist(), strict=True)
        return [opened[shard][start:end] for shard, start, end in places]


def map_shards(paths: list[str], *, shuffled: bool = False) -> Callable[[int], memoryview]:
    """Return a function that maps shard i into memory; only the latest ones stay mapped."""

    @functools.lru_cache(maxsize=_OPEN_SHUFFLED if shuffled else _OPEN_IN_ORDER)
    def open_shard(number: int) -> memoryview:
        with open(paths[number], "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # All its records will be read soon, so have the system read ahead.
        mapped.madvise(mmap.MADV_WILLNEED)
        return memoryview(mapped)

    return open_shard
