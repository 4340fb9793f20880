"""Images of the evaluated split, as they were found, with the model's predictions."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from components.contract.example import ENCODED, FILENAME, decode_text
from components.images.thumbnails import SIDE, Thumbnail, make_thumbnail
from components.metrics.predictions import Evaluated, Ints
from components.records.shard_files import list_shards
from components.records.tfrecord import read_features
from components.report.shown import PredictedImage

# Mistakes with the same true and predicted class, so that a gallery shows several confusions.
_MOST_ALIKE = 3
# Few enough images to show each in twice the width and height.
_FEW = 300
_NAME, _IMAGE = FILENAME.encode(), ENCODED.encode()

Explain = Callable[[Mapping[str, bytes]], Mapping[str, Thumbnail]]
"""Maps file name → encoded image to file name → heat map."""


class Chosen(NamedTuple):
    """Row numbers of the examples to show."""

    mistakes: Ints
    """The worst mistakes, the most confident first."""
    images: Ints
    """Images to browse, the most important first."""


def choose_images(
    evaluated: Evaluated, *, mistakes: int, images: int, shown: Collection[str] = ()
) -> Chosen:
    """Choose the most informative examples.

    The mistakes are the most confident ones, at most 3 of them with the same true and predicted
    class unless there are too few others. The images start with one of each pair of true and
    predicted class, then a second one, and so on; confident mistakes come before unsure ones, then
    right predictions, the unsure ones first.

    The pairs of the classes `shown` count one by one; other classes count as a whole. Ties are in
    the order of file names.
    """
    model, stats = evaluated.candidate, evaluated.candidate.stats
    # Mistakes from sure to unsure, then right predictions from unsure to sure.
    order = np.lexsort((np.where(stats.right, stats.confidence, -stats.confidence), stats.right))
    pairs = np.stack([model.ids, stats.predicted], axis=1)[order]
    wrong = np.count_nonzero(~stats.right)
    varied = np.argsort(_take_turns(pairs)[:wrong] >= _MOST_ALIKE, kind="stable")[:mistakes]
    columns = [column for column, label in enumerate(model.labels) if label in shown]
    hidden = ~np.isin(pairs, columns).all(axis=1)
    pairs[hidden, 1] = -1
    browsed = np.lexsort((hidden, _take_turns(pairs)))[:images]
    return Chosen(order[np.sort(varied)], order[browsed])


def _take_turns(pairs: Ints) -> Ints:
    """Return for each pair, [pairs, 2], how many equal ones come before it."""
    turns: Ints = pd.DataFrame(pairs).groupby([0, 1]).cumcount().to_numpy()
    return turns


def show_images(
    evaluated: Evaluated,
    chosen: Chosen,
    examples_uri: str,
    split: str,
    explain: Explain = lambda files: {},
) -> tuple[tuple[PredictedImage, ...], ...]:
    """Read the pictures of the chosen examples, all in one pass.

    Returns:
        Mistakes and images, in the order of `chosen`.
    """
    rows = np.unique(np.concatenate(chosen)).tolist()
    names = {evaluated.filenames[row] for row in rows}
    side = 2 * SIDE if len(names) <= _FEW else SIDE
    wrong = {evaluated.filenames[row] for row in chosen.mistakes}
    files: dict[str, bytes] = {}
    pictures: dict[str, Thumbnail | None] = {}
    for name, encoded in read_images(examples_uri, split, names):
        pictures[name] = make_thumbnail(encoded, side=side)
        if name in wrong:
            files[name] = encoded
    mistakes, images = (
        tuple(PredictedImage.of(evaluated, row, pictures) for row in part.tolist())
        for part in chosen
    )
    heat_maps = explain(files)
    mistakes = tuple(
        dataclasses.replace(image, heat_map=heat_maps.get(image.filename)) for image in mistakes
    )
    return mistakes, images


def read_images(
    examples_uri: str, split: str, filenames: Collection[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of these images, in a pass that ends with the last of them."""
    missing = set(filenames)
    for shard in list_shards(examples_uri, split) if missing else ():
        for features in read_features(shard, (_NAME, _IMAGE)):
            name = decode_text(bytes(features[_NAME]))
            if name in missing:
                missing.remove(name)
                yield name, bytes(features[_IMAGE])
            if not missing:
                return
