"""The images of the evaluated split, as they were found, with what the model answered to them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from components.evaluation.metrics.predictions import Evaluated, Ints
from components.images.picture import Picture
from components.images.thumbnails import SIDE
from components.report.facts import AnsweredImage
from components.report.pictures.record_thumbnails import read_thumbnails

# Of one pair of right and wrong class, so that a gallery shows more than one confusion.
_MOST_ALIKE = 3
# Few enough images to show each of them in twice the width and height.
_FEW = 300


Explain = Callable[[Mapping[str, bytes]], Mapping[str, Picture]]
"""From file name → encoded image to file name → heat map."""


class Chosen(NamedTuple):
    """Numbers of the examples to show."""

    mistakes: Ints
    """The worst ones, the most confident first."""
    images: Ints
    """Those to browse, the first ones first if there is no room for all."""


def choose(
    evaluated: Evaluated, *, mistakes: int, images: int, shown: Collection[str] = ()
) -> Chosen:
    """Choose what a person learns most from.

    The mistakes are the wrong answers that the model is most sure of, at most 3 of them with the
    same right and the same wrong class, unless there are too few others. The images begin with one
    of each pair of right and predicted class, go on with a second one, and so on; of a pair, and
    among pairs, confident mistakes come before unsure ones, then what is right but unsure.

    Args:
        evaluated: the answers; equals are in the order of their names.
        mistakes: how many to choose.
        images: how many to choose.
        shown: labels of the classes each pair of which counts; others take turns as classes.
    """
    predicted = evaluated.candidate.probabilities.argmax(axis=1)
    order = _sort_by_news(evaluated, predicted)
    wrong = order[predicted[order] != evaluated.candidate.ids[order]]
    turns = _take_turns(_pairs(evaluated, predicted, wrong))
    varied = np.argsort(turns >= _MOST_ALIKE, kind="stable")[:mistakes]
    return Chosen(
        wrong[np.sort(varied)], _choose_images(evaluated, predicted, order, shown)[:images]
    )


def _sort_by_news(evaluated: Evaluated, predicted: Ints) -> Ints:
    """Order all examples: mistakes from sure to unsure, then right answers from unsure to sure."""
    confidence = evaluated.candidate.probabilities.max(axis=1)
    right = predicted == evaluated.candidate.ids
    order: Ints = np.lexsort((np.where(right, confidence, -confidence), right))
    return order


def _choose_images(
    evaluated: Evaluated, predicted: Ints, order: Ints, shown: Collection[str]
) -> Ints:
    labels = evaluated.candidate.labels
    columns = {column for column, label in enumerate(labels) if label in shown}
    pairs = _pairs(evaluated, predicted, order)
    hidden = np.array([not columns.issuperset(pair) for pair in pairs], bool)
    kinds = (pair[0] if is_hidden else pair for pair, is_hidden in zip(pairs, hidden, strict=True))
    chosen: Ints = order[np.lexsort((hidden, _take_turns(kinds)))]
    return chosen


def _pairs(evaluated: Evaluated, predicted: Ints, rows: Ints) -> list[tuple[int, int]]:
    ids = evaluated.candidate.ids[rows].tolist()
    return list(zip(ids, predicted[rows].tolist(), strict=True))


def _take_turns(kinds: Iterable[Hashable]) -> Ints:
    """Return how many of the same kind come before each."""
    seen: collections.Counter[Hashable] = collections.Counter()
    turns = []
    for kind in kinds:
        turns.append(seen[kind])
        seen[kind] += 1
    return np.array(turns, np.int64)


def show(
    evaluated: Evaluated,
    chosen: Chosen,
    examples_uri: str,
    split: str,
    explain: Explain = lambda files: {},
) -> tuple[tuple[AnsweredImage, ...], tuple[AnsweredImage, ...]]:
    """Read the pictures of what was chosen, all in one pass.

    Args:
        evaluated: the answers.
        chosen: examples to show.
        examples_uri: URI of ImageExampleGen's examples, with the images as they were found.
        split: the split that was evaluated.
        explain: draws the heat maps of the mistakes.

    Returns:
        Mistakes and images, in the order in which they were chosen.
    """
    rows = np.union1d(chosen.mistakes, chosen.images).tolist()
    names = {evaluated.filenames[row] for row in rows}
    side = 2 * SIDE if len(names) <= _FEW else SIDE
    wrong = {evaluated.filenames[row] for row in chosen.mistakes}
    files: dict[str, bytes] = {}

    def keep(name: str, encoded: bytes) -> None:
        if name in wrong:
            files[name] = encoded

    pictures = read_thumbnails(examples_uri, split, names, side=side, keep=keep)
    mistakes, images = (_describe(evaluated, part.tolist(), pictures) for part in chosen)
    heat_maps = explain(files)
    mistakes = tuple(
        dataclasses.replace(image, heat_map=heat_maps.get(image.filename)) for image in mistakes
    )
    return mistakes, images


def _describe(
    evaluated: Evaluated, rows: Iterable[int], pictures: Mapping[str, Picture | None]
) -> tuple[AnsweredImage, ...]:
    answers = evaluated.candidate
    described = []
    for row in rows:
        column, of_row = int(answers.ids[row]), answers.probabilities[row]
        predicted, known = int(of_row.argmax()), column >= 0
        described.append(
            AnsweredImage(
                filename=evaluated.filenames[row],
                label=answers.labels[column] if known else evaluated.slices["class"][row],
                predicted=answers.labels[predicted],
                confidence=float(of_row[predicted]),
                probability=float(of_row[column]) if known else 0.0,
                picture=pictures.get(evaluated.filenames[row]),
            )
        )
    return tuple(described)
