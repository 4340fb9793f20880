"""Which images a split has, where they lie, and the order of each epoch of training."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.records.record_index import read_rows
from components.records.shard_files import read_index

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shards:
    """The transformed shards of one split."""

    uri: str
    """Of the Examples artifact."""
    split: str
    counts: dict[str, int]
    """Name of each shard's file → its records, in the order of the names."""

    @classmethod
    def of_pattern(cls, pattern: str) -> Shards:
        """Find the shards that `pattern`, `<artifact>/Split-<split>/*`, stands for.

        The artifact's own index names them, so that no folder is listed and no file asked for
        its size, which takes a request each in Cloud Storage.
        """
        folder = os.path.dirname(pattern)
        uri, split = os.path.dirname(folder), os.path.basename(folder).removeprefix("Split-")
        return cls(uri, split, dict(sorted(read_index(uri)["splits"][split].items())))

    @property
    def paths(self) -> list[str]:
        """Of every shard."""
        return [os.path.join(self.uri, f"Split-{self.split}", name) for name in self.counts]

    @property
    def total(self) -> int:
        """Records in all shards."""
        return sum(self.counts.values())

    @property
    def local(self) -> bool:
        """Whether the shards are files that can be mapped into memory."""
        return "://" not in self.uri


@dataclass(frozen=True)
class RecordTable:
    """Where each image lies; row i is record i of the split, shard after shard."""

    shard: npt.NDArray[np.int32]
    """Number of the shard."""
    offset: Int64Array
    """Of the image in the shard, bytes."""
    length: Int64Array
    """Of the image, bytes."""
    label: Int64Array
    """Its label id."""

    @classmethod
    def read(cls, shards: Shards) -> RecordTable:
        """Read the indexes that Transform wrote beside the shards.

        Raises:
            FileNotFoundError: there is none.
        """
        tables = read_rows(shards.uri, shards.split, list(shards.counts))
        number = np.repeat(np.arange(len(tables), dtype=np.int32), [len(rows) for rows in tables])
        return cls(number, *np.concatenate(tables).T.copy())


class EpochOrder:
    """The order of records in each epoch: every record once, and each epoch in its own order.

    The shards are shuffled; the records of `mixed` shards at a time are, all together. As records
    lie in shards in the order of hashes, that is as good as shuffling all of them, and reads
    files of any size from a slow disk once.
    """

    def __init__(self, counts: Sequence[int], *, mixed: int, seed: int) -> None:
        """Shuffle shards of `counts` records, `mixed` at a time, by `seed`."""
        self._ends = np.cumsum(counts)
        self._mixed = mixed
        self._seed = seed
        self._of_epoch = functools.lru_cache(maxsize=2)(self._shuffle)

    def at(self, positions: Int64Array) -> Int64Array:
        """Return the records at these positions of the endless sequence of epochs."""
        total = int(self._ends[-1])
        epochs, within = np.divmod(positions, total)
        records = np.empty_like(positions)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            records[chosen] = self._of_epoch(int(epoch))[within[chosen]]
        return records

    def _shuffle(self, epoch: int) -> Int64Array:
        draws = np.random.default_rng([self._seed, epoch])
        starts = np.concatenate([[0], self._ends[:-1]])
        shards = draws.permutation(len(starts))
        parts = []
        for first in range(0, len(shards), self._mixed):
            group = shards[first : first + self._mixed]
            records = np.concatenate([np.arange(starts[s], self._ends[s]) for s in group])
            parts.append(draws.permutation(records))
        return np.concatenate(parts)
