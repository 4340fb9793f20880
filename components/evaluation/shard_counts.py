"""Counts of all models on the same examples, and the file of them that each shard leaves."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.evaluation.metrics.counts import SlicedCounts
from components.evaluation.metrics.predictions import PredictionStats
from components.evaluation.prediction_parts import FOLDER, write_file
from components.storage.artifact_files import list_names, open_file

_SUFFIX = ".counts"
_ARRAYS = ("cells", "bins", "top", "loss")


@dataclass(frozen=True)
class ShardCounts:
    """Sums over a set of examples."""

    models: tuple[SlicedCounts, ...]
    """Of the candidate and, if there is one, the model in use."""
    gained: int = 0
    """Examples that only the candidate is right about."""
    lost: int = 0
    """Examples that only the model in use is right about."""

    @classmethod
    def of(
        cls, stats: Sequence[PredictionStats], slices: Mapping[str, Sequence[str]]
    ) -> ShardCounts:
        """Count a batch.

        Args:
            stats: of each model on the same examples.
            slices: slicing → value of each example.
        """
        right, before = stats[0].right, stats[-1].right
        return cls(
            models=tuple(SlicedCounts.of(model, slices) for model in stats),
            gained=int(np.count_nonzero(right & ~before)),
            lost=int(np.count_nonzero(before & ~right)),
        )

    @classmethod
    def add_up(cls, parts: Sequence[ShardCounts]) -> ShardCounts:
        """Add up the counts of at least one set of examples."""
        models = zip(*(part.models for part in parts), strict=True)
        return cls(
            models=tuple(SlicedCounts.add_up(of_model) for of_model in models),
            gained=sum(part.gained for part in parts),
            lost=sum(part.lost for part in parts),
        )


def write_counts(evaluation_uri: str, shard: str, counts: ShardCounts) -> None:
    """Write the counts of a shard next to its predictions."""
    facts = {
        "slices": [model.slices for model in counts.models],
        "gained": counts.gained,
        "lost": counts.lost,
    }
    arrays = {
        f"{name}{number}": getattr(model, name)
        for number, model in enumerate(counts.models)
        for name in _ARRAYS
    }
    buffer = io.BytesIO()
    np.savez(buffer, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    write_file(os.path.join(evaluation_uri, FOLDER, shard + _SUFFIX), buffer.getvalue())


def read_counts(evaluation_uri: str) -> ShardCounts:
    """Add up the counts of all shards."""
    return ShardCounts.add_up(list(_read_all(os.path.join(evaluation_uri, FOLDER))))


def _read_all(folder: str) -> Iterator[ShardCounts]:
    for name in list_names(folder):
        if name.endswith(_SUFFIX):
            with open_file(os.path.join(folder, name), "rb") as file:
                yield _parse(np.load(io.BytesIO(file.read()), allow_pickle=False))


def _parse(arrays: Any) -> ShardCounts:
    facts = json.loads(arrays["facts"].tobytes())
    models = tuple(
        SlicedCounts(
            tuple((slicing, value) for slicing, value in slices),
            *(arrays[f"{name}{number}"] for name in _ARRAYS),
        )
        for number, slices in enumerate(facts["slices"])
    )
    return ShardCounts(models, facts["gained"], facts["lost"])
