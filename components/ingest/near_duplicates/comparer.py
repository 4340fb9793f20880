"""The likeness of pairs of images, which is kept so that later ingests compare only new ones."""

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.contract.artifact_files import open_file
from components.host.machine import release_pages
from components.ingest.digests import Digests
from components.ingest.near_duplicates.likeness import likeness
from components.ingest.near_duplicates.picture_rows import Rows
from components.records.shard_files import PLANS

Pairs = NDArray[np.int64]
"""Indices of rows, [pairs, 2]."""

_FILE = "likeness"
# The first 8 bytes of the digests of two images, and their likeness.
_LINE = np.dtype([("one", "<u8"), ("other", "<u8"), ("score", "<f4")])
# Reading a row maps 64 KiB around it.
_BLOCK = 1024


class Likeness(NamedTuple):
    """Pairs of rows that have been compared."""

    numbers: NDArray[np.int64]
    """Each pair, ascending, see `number_pairs`."""
    scores: NDArray[np.float32]
    """Their likeness."""


NONE_COMPARED = Likeness(np.empty(0, np.int64), np.empty(0, np.float32))


class Comparer:
    """Compares rows, each pair once."""

    def __init__(self, rows: Rows, known: Likeness = NONE_COMPARED) -> None:
        """Compare `rows`, see `read_pictures`, but for the pairs of `known`."""
        self.rows = rows
        self._known = known
        self._asked = [NONE_COMPARED]

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """Return the likeness of each pair of rows, [pairs, 2], in any order."""
        pairs = np.sort(pairs, axis=1)
        numbers, known = number_pairs(pairs), self._known
        places = np.searchsorted(known.numbers, numbers)
        new = np.flatnonzero(np.append(known.numbers, -1)[places] != numbers)
        scores = np.append(known.scores, np.float32(0))[places]
        scores[new] = compare(self.rows, pairs[new])
        self._asked.append(Likeness(numbers, scores))
        return scores

    @property
    def asked(self) -> Likeness:
        """All pairs that were asked for."""
        numbers, scores = map(np.concatenate, zip(*self._asked, strict=True))
        numbers, first = np.unique(numbers, return_index=True)
        return Likeness(numbers, scores[first])


def compare(rows: Rows, pairs: Pairs) -> NDArray[np.float32]:
    """Return the likeness of each pair of rows, see `likeness`."""
    scores = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _BLOCK):
        one, other = (rows[column] for column in pairs[start : start + _BLOCK].T)
        release_pages(rows)
        sides = np.maximum(one[:, -1], other[:, -1])
        scores[start : start + _BLOCK] = likeness(one[:, :-1], other[:, :-1], sides)
    return scores


def number_pairs(pairs: Pairs) -> NDArray[np.int64]:
    """Return a number for each pair, [pairs, 2], in the order of the pairs."""
    numbers: NDArray[np.int64] = pairs[:, 0] << 32 | pairs[:, 1]
    return numbers


def write_likeness(examples_uri: str, digests: Digests, compared: Likeness) -> None:
    """Write the likeness of pairs of rows, which have these digests."""
    ids = digests.shorten()
    table = np.empty(len(compared.numbers), _LINE)
    table["one"], table["other"] = ids[compared.numbers >> 32], ids[compared.numbers & 0xFFFFFFFF]
    table["score"] = compared.scores
    with open_file(os.path.join(examples_uri, PLANS, _FILE), "wb") as file:
        file.write(table.tobytes())


def read_likeness(examples_uri: str, digests: Digests) -> Likeness:
    """Read what an earlier ingest has compared of rows, which have these digests."""
    try:
        with open_file(os.path.join(examples_uri, PLANS, _FILE), "rb") as file:
            table = np.frombuffer(file.read(), _LINE)
    except (OSError, ValueError):  # Damaged, or being removed: everything is compared again.
        return NONE_COMPARED
    if not digests:
        return NONE_COMPARED
    ids = digests.shorten()
    order = np.argsort(ids)
    names = np.stack([table["one"], table["other"]], axis=1)
    rows = order[np.minimum(np.searchsorted(ids[order], names), len(ids) - 1)]
    is_here = (ids[rows] == names).all(axis=1)
    numbers, first = np.unique(number_pairs(np.sort(rows[is_here], axis=1)), return_index=True)
    return Likeness(numbers, table["score"][is_here][first])
