"""Beam's part of the evaluation: a shard of examples → predictions, and counts of them.

An element is a shard, never an image. Nothing is shuffled: results are files named by their shards,
so that any runner will do, and one that repeats a shard replaces what is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.utils.shared import Shared

from components.contract.example import FILENAME, LABEL
from components.contract.progress import add_progress
from components.evaluation.answering.example_batches import read_batches
from components.evaluation.answering.served_model import ServedModel
from components.evaluation.answering.split_counts import SplitCounts, add_up_counts, write_counts
from components.evaluation.metrics.predictions import Answers
from components.evaluation.prediction_parts import open_part
from components.evaluation.slices import describe_slices, make_readable


@dataclass(frozen=True)
class Job:
    """What the models are asked, and where the answers go."""

    models: Sequence[str]
    """Paths of the candidate and, if there is one, the model in use."""
    evaluation_uri: str
    """Folder for the parts of predictions and counts."""
    slicings: Sequence[str]
    """That answers are counted by."""
    total: int
    """Number of all examples, for those who wait."""


def answer_shards(pipeline: beam.Pipeline, shards: Sequence[str], job: Job) -> None:
    """Ask the models about every example of `shards`, paths of TFRecord files."""
    _ = (
        pipeline
        | "Shards" >> beam.Create(list(shards))
        # A worker would do all of them otherwise.
        | "Spread" >> beam.Reshuffle()
        | "Answer" >> beam.ParDo(AnswerShard(job))
    )


class _Models(list[ServedModel]):
    """A list that may be shared: Beam keeps a weak reference to it."""


class AnswerShard(beam.DoFn):
    """Asks the models about a shard, batch by batch; yields nothing, results are files."""

    def __init__(self, job: Job) -> None:
        """Do shards of `job`."""
        self._job = job
        # The threads of a worker process have one copy of the models between them.
        self._shared = Shared()

    def setup(self) -> None:
        """Load the models."""
        self._models = self._shared.acquire(
            lambda: _Models(ServedModel(path) for path in self._job.models)
        )

    def process(self, shard: str) -> Iterator[None]:
        """Write the predictions of a shard and, after them, its counts."""
        batches = read_batches(shard)
        first = next(batches, None)
        if first is None:
            return
        name = os.path.basename(shard)
        labels = [model.ask_labels(first[0]) for model in self._models]
        with open_part(self._job.evaluation_uri, name, labels) as part:
            counts = [self._answer(part, *first)]
            counts += [self._answer(part, *batch) for batch in batches]
        write_counts(self._job.evaluation_uri, name, add_up_counts(counts))
        yield from ()

    def _answer(self, part: Any, examples: Any, features: dict[str, Any]) -> SplitCounts:
        ids, probabilities = zip(*(model.answer(examples) for model in self._models), strict=True)
        slices = describe_slices(features)
        texts = {"filename": features[FILENAME].tolist(), "label": features[LABEL].tolist()}
        texts |= {name: [_encode(value) for value in of] for name, of in slices.items()}
        part.add(texts, probabilities)
        answers = [Answers.of(*of_model) for of_model in zip(ids, probabilities, strict=True)]
        done, total = len(texts["label"]), self._job.total
        add_progress(self._job.evaluation_uri, done, total=total, unit="images")
        counted = {name: make_readable(slices[name]) for name in self._job.slicings}
        return SplitCounts.of(answers, counted)


def _encode(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")
