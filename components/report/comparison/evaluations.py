"""Reads what a run evaluated, and pairs the images of two runs by content, whatever their names."""

from __future__ import annotations

import collections
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from components.contract.errors import StorageError
from components.contract.example import ENCODED, FILENAME, SHA256
from components.evaluation.metrics.predictions import Evaluated, Ints, Predictions
from components.evaluation.prediction_file import read_predictions
from components.evaluation.slices import decode_text
from components.images.picture import Picture
from components.images.thumbnails import make_thumbnail
from components.records.record_reader import read_features
from components.records.shard_files import list_shards

_NAME, _KEY, _IMAGE = FILENAME.encode(), SHA256.encode(), ENCODED.encode()


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The predictions of a run for its images."""

    evaluated: Evaluated
    keys: tuple[str, ...]
    """Digest of the content of each image."""
    examples: str
    """URI of ImageExampleGen's examples."""
    split: str

    @property
    def predictions(self) -> Predictions:
        """The predictions of the model."""
        return self.evaluated.candidate

    @property
    def labels(self) -> tuple[str, ...]:
        """The true label of each image."""
        return self.evaluated.slices["class"]


def read_evaluation(evaluation_uri: str, examples_uri: str, split: str) -> Evaluation:
    """Read the predictions of a run, and the digest of each image from its examples.

    Raises:
        OSError: a file cannot be read.
        StorageError: the files are damaged, or do not belong together.
    """
    evaluated = read_predictions(evaluation_uri)
    keys: dict[str, str] = {}
    for path in list_shards(examples_uri, split):
        for features in read_features(path, (_NAME, _KEY)):
            keys[_decode(features[_NAME])] = _decode(features[_KEY])
    if missing := [name for name in evaluated.filenames if name not in keys]:
        raise StorageError(f"{examples_uri} does not hold {missing[0]!r}, which was evaluated.")
    digests = tuple(keys[name] for name in evaluated.filenames)
    return Evaluation(evaluated, digests, examples_uri, split)


def read_pictures(evaluation: Evaluation, filenames: Collection[str]) -> dict[str, Picture | None]:
    """Make thumbnails of some images of an evaluation."""
    wanted = frozenset(filenames)
    pictures: dict[str, Picture | None] = {}
    for path in list_shards(evaluation.examples, evaluation.split):
        for features in read_features(path, (_NAME, _IMAGE)):
            if len(pictures) == len(wanted):
                return pictures
            if (name := _decode(features[_NAME])) in wanted:
                pictures[name] = make_thumbnail(bytes(features[_IMAGE]))
    return pictures


def _decode(value: memoryview) -> str:
    return decode_text(bytes(value))


@dataclass(frozen=True)
class Overlap:
    """Numbers of the images that the runs share or not."""

    shared: int
    """In both runs with the same label."""
    relabelled: int
    """In both runs with different labels."""
    only_first: int
    """In the first run only."""
    only_second: int

    @property
    def is_whole(self) -> bool:
        """Whether both runs evaluated the same images with the same labels."""
        return not (self.relabelled or self.only_first or self.only_second)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images that both runs evaluated."""

    first: Ints
    """[pairs], rows of the first evaluation."""
    second: Ints
    """[pairs], rows of the second one."""
    overlap: Overlap


def pair(first: Evaluation, second: Evaluation) -> Pairs:
    """Pair images with the same content and label; copies of an image pair one by one.

    Images with different labels are only counted.
    """
    rows, others = _number(first), _number(second)
    both = sorted(rows.keys() & others.keys())
    # Keys left on both sides differ in the label.
    left = collections.Counter(key for key, *_ in rows.keys() - others.keys())
    right = collections.Counter(key for key, *_ in others.keys() - rows.keys())
    relabelled = (left & right).total()
    return Pairs(
        first=np.array([rows[image] for image in both], np.int64),
        second=np.array([others[image] for image in both], np.int64),
        overlap=Overlap(
            shared=len(both),
            relabelled=relabelled,
            only_first=left.total() - relabelled,
            only_second=right.total() - relabelled,
        ),
    )


def _number(evaluation: Evaluation) -> dict[tuple[str, str, int], int]:
    """Return the row of each image by content, label, and number of the copy."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    rows = {}
    for row, image in enumerate(zip(evaluation.keys, evaluation.labels, strict=True)):
        rows[*image, seen[image]] = row
        seen[image] += 1
    return rows
