"""The model's worst mistakes, with the images as they were found."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from components.contract.example import ENCODED, FILENAME
from components.evaluation.metrics.predictions import Evaluated, Ints
from components.images.picture import Picture
from components.images.thumbnails import make_thumbnail
from components.records.shard_files import list_shards
from components.report.facts import Mistake

# Of one pair of right and wrong class, so that a gallery shows more than one confusion.
_MOST_ALIKE = 3

# Records parsed at once, of whatever size they are.
_BATCH = 32


def show_mistakes(
    evaluated: Evaluated, examples_uri: str, split: str, *, most: int
) -> tuple[Mistake, ...]:
    """Show the wrong answers that the model is most sure of, equals in the order of their names.

    At most 3 have the same right and the same wrong class, unless there are too few others.

    Args:
        evaluated: the answers.
        examples_uri: URI of ImageExampleGen's examples, with the images as they were found.
        split: the split that was evaluated.
        most: how many to show.
    """
    answers = evaluated.candidate
    predicted = answers.probabilities.argmax(axis=1)
    chosen = _choose_mistakes(evaluated, predicted, most).tolist()
    pictures = _read_pictures(examples_uri, split, {evaluated.filenames[row] for row in chosen})
    mistakes = []
    for row in chosen:
        column, of_row = int(answers.ids[row]), answers.probabilities[row]
        known = column >= 0
        mistakes.append(
            Mistake(
                filename=evaluated.filenames[row],
                label=answers.labels[column] if known else evaluated.slices["class"][row],
                predicted=answers.labels[predicted[row]],
                confidence=float(of_row[predicted[row]]),
                probability=float(of_row[column]) if known else 0.0,
                picture=pictures.get(evaluated.filenames[row]),
            )
        )
    return tuple(mistakes)


def _choose_mistakes(evaluated: Evaluated, predicted: Ints, most: int) -> Ints:
    """Return the numbers of the examples to show, the most confident answers first."""
    ids = evaluated.candidate.ids
    confidence = evaluated.candidate.probabilities.max(axis=1)
    [wrong] = np.nonzero(predicted != ids)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    alike: collections.Counter[tuple[int, int]] = collections.Counter()
    turn = np.empty(len(wrong), np.int64)
    for place, row in enumerate(wrong.tolist()):
        pair = int(ids[row]), int(predicted[row])
        alike[pair] += 1
        turn[place] = alike[pair]
    varied = np.argsort(turn > _MOST_ALIKE, kind="stable")[:most]
    chosen: Ints = wrong[np.sort(varied)]
    return chosen


def _read_pictures(
    examples_uri: str, split: str, filenames: Collection[str]
) -> dict[str, Picture | None]:
    """Read the images with these names, by a pass over the split that ends with the last one."""
    # Names that are not valid UTF-8 are surrogates in Python, and bytes in records.
    wanted = {name.encode("utf-8", "surrogateescape"): name for name in filenames}
    pictures: dict[str, Picture | None] = {}
    for batch, names in _read_names(examples_uri, split) if wanted else ():
        for row, name in enumerate(names):
            if name in wanted:
                pictures[wanted[name]] = _show(batch[row : row + 1])
        if len(pictures) == len(wanted):
            break
    return pictures


def _show(serialized: Any) -> Picture | None:
    [encoded] = _parse(serialized, ENCODED).numpy()
    return make_thumbnail(encoded)


def _read_names(examples_uri: str, split: str) -> Iterator[tuple[Any, list[bytes]]]:
    """Yield serialized records, string [batch], and the file name of each."""
    import tensorflow as tf

    shards = list_shards(examples_uri, split)
    for batch in tf.data.TFRecordDataset(shards).batch(_BATCH).prefetch(1):
        yield batch, _parse(batch, FILENAME).numpy().tolist()


def _parse(serialized: Any, name: str) -> Any:
    """Return one feature of each record, string [batch]; the other features are not parsed."""
    import tensorflow as tf

    return tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([], tf.string)})[name]
