"""What is counted of all models on the same examples, and the file of it that each shard leaves."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.evaluation.metrics.predictions import Answers
from components.evaluation.metrics.sliced_counts import SlicedCounts, add_up
from components.evaluation.prediction_parts import FOLDER, write_file
from components.storage.artifact_files import list_names, open_file

_SUFFIX = ".counts"
_ARRAYS = ("cells", "bins", "top", "loss")


@dataclass(frozen=True)
class SplitCounts:
    """Sums over a set of examples."""

    models: tuple[SlicedCounts, ...]
    """Of the candidate and, if there is one, the model in use."""
    gained: int = 0
    """Examples that only the candidate is right about."""
    lost: int = 0
    """Examples that only the model in use is right about."""

    @classmethod
    def of(cls, answers: Sequence[Answers], slices: Mapping[str, Sequence[str]]) -> SplitCounts:
        """Count a batch.

        Args:
            answers: of each model to the same examples.
            slices: slicing → the value of each example.
        """
        right, before = answers[0].right, answers[-1].right
        return cls(
            models=tuple(SlicedCounts.of(model, slices) for model in answers),
            gained=int(np.count_nonzero(right & ~before)),
            lost=int(np.count_nonzero(before & ~right)),
        )


def add_up_counts(parts: Sequence[SplitCounts]) -> SplitCounts:
    """Return the counts of several sets of examples, at least one, as if they were one."""
    models = zip(*(part.models for part in parts), strict=True)
    return SplitCounts(
        models=tuple(add_up(of_model) for of_model in models),
        gained=sum(part.gained for part in parts),
        lost=sum(part.lost for part in parts),
    )


def write_counts(evaluation_uri: str, shard: str, counts: SplitCounts) -> None:
    """Write the counts of a shard beside its predictions."""
    facts = {
        "places": [model.places for model in counts.models],
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


def read_counts(evaluation_uri: str) -> SplitCounts:
    """Add up the counts of all shards."""
    return add_up_counts(list(_read_all(os.path.join(evaluation_uri, FOLDER))))


def _read_all(folder: str) -> Iterator[SplitCounts]:
    for name in list_names(folder):
        if name.endswith(_SUFFIX):
            with open_file(os.path.join(folder, name), "rb") as file:
                yield _parse(np.load(io.BytesIO(file.read()), allow_pickle=False))


def _parse(arrays: Any) -> SplitCounts:
    facts = json.loads(arrays["facts"].tobytes())
    models = tuple(
        SlicedCounts(
            tuple((slicing, value) for slicing, value in places),
            *(arrays[f"{name}{number}"] for name in _ARRAYS),
        )
        for number, places in enumerate(facts["places"])
    )
    return SplitCounts(models, facts["gained"], facts["lost"])
