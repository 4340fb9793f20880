"""The transformed images of a small data set, together on disk, and the part of each fold."""

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from components.contract.example import ENCODED, LABEL_ID, SHA256, TRAIN
from components.records.record_index import write_indexed_shard
from components.records.record_reader import read_features
from components.records.shard_files import read_index, write_index
from components.trainer.input.shards import RecordTable, Shards
from components.trainer.loop.cross_validation.assignment import assign_folds
from components.trainer.training_input import TrainingInput

_SHARD = "data_tfrecord-00000-of-00001"
_KEPT = tuple(name.encode() for name in (ENCODED, SHA256))

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SmallSet:
    """All images of the train and eval splits, train first, in the order of their records."""

    records: list[dict[str, Any]]
    """Features of each image, with its label id."""
    units: list[str]
    """What each image has in common with those that must stay in its fold."""

    @classmethod
    def read(cls, data: TrainingInput) -> Self:
        """Read the transformed images."""
        together: Mapping[str, str] = read_index(data.train.uri).get("groups", {})
        records = [record for of in (data.train, data.evaluation) for record in _read(of)]
        keys = [record[SHA256].decode() for record in records]
        return cls(records, [together.get(key, key) for key in keys])

    @property
    def keys(self) -> tuple[str, ...]:
        """SHA-256 of each image."""
        return tuple(record[SHA256].decode() for record in self.records)

    @property
    def labels(self) -> Rows:
        """Label id of each image."""
        return np.array([record[LABEL_ID] for record in self.records], np.int64)

    def assign(self, folds: int) -> Rows:
        """Return the fold of each image, from 0, [images]."""
        return assign_folds(self.labels, self.units, folds)

    def divide(self, data: TrainingInput, judged: Rows, *, replicas: int) -> TrainingInput:
        """Return the input of a training on all images but the `judged` ones."""
        options = data.config.input
        # A file would stay behind, and rows are read by their index.
        cache = "decoded" if options.cache == "file" else options.cache
        options = dataclasses.replace(options, cache=cache, reader="indexed")
        config = dataclasses.replace(data.config, input=options)
        learned = np.setdiff1d(np.arange(len(self.records)), judged)
        train, evaluation = (
            dataclasses.replace(self._shards, rows=tuple(rows.tolist()))
            for rows in (learned, judged)
        )
        return dataclasses.replace(data, config=config).of(train, evaluation, replicas)

    @cached_property
    def _shards(self) -> Shards:
        """All images, in a file that is removed with this object."""
        folder = self._folder.name
        count = write_indexed_shard(folder, TRAIN, _SHARD, self.records)
        write_index(folder, {TRAIN: {_SHARD: count}}, labels={})
        return Shards(folder, TRAIN, {_SHARD: count})

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="folds-")


def _read(shards: Shards) -> Iterator[dict[str, Any]]:
    labels = iter(RecordTable.read(shards).label.tolist())
    for path in shards.paths:
        for found in read_features(path, _KEPT):
            texts = {name.decode(): bytes(value) for name, value in found.items()}
            yield {**texts, LABEL_ID: next(labels)}
