"""Copies of an image that have another label, or are in another split or fold.

Ingest compares small gray pictures before anything is trained. The features of a pretrained network
also tell cropped and mirrored copies.
"""

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from components.contract.artifact_files import open_file
from components.contract.example import DUPLICATES_FILE, NEAR_DUPLICATES_FILE, TRAIN, spell_path
from components.contract.image_tables import Suspect
from components.report.suspects.similar import Columns, Features, find_neighbors, find_rows


class Copy(NamedTuple):
    """One of several copies of an image."""

    path: str
    label: str
    split: str | None
    """None if the image is not used."""
    sha256: str
    fold: int
    """-1: no folds judge the model, or the image is not used."""
    likeness: float


# The distance of copies, as a fraction of that to the tenth nearest image. Of 3,600 images of
# CIFAR-10, 160 photographs and 1,797 digits, and of parts of these, no others are as close.
_CLOSE, _NEAREST = 0.2, 10
# Pairs of images that are compared: 16,384 images with each other, 268 with a million.
_MOST_PAIRS = 2**28
# A cluster may have thousands.
_MOST_TWINS = 3


def find_copies(columns: Columns, features: Features) -> list[list[Copy]]:
    """Find pairs of copies, those with another label or in another split or fold.

    Of many images, evenly spaced ones are compared with all others.

    Args:
        columns: `path`, `sha256`, `split`, `fold` and `label` of all images.
        features: of a pretrained network, [images, features].
    """
    count = len(features)
    if count <= _NEAREST:
        return []
    kinds = (columns["split"] + "/" + columns["label"]).astype(str)
    folds = columns["fold"]
    queries = np.arange(0, count, -(-(count**2) // _MOST_PAIRS))
    near = find_neighbors(features, queries, among=np.arange(count), most=_NEAREST)
    distances = 1 - near.similarities
    is_copy = distances < _CLOSE * distances[:, -1:]
    is_other = kinds[near.rows] != kinds[queries, np.newaxis]
    is_copy &= is_other | (folds[near.rows] != folds[queries, np.newaxis])
    ones, others = queries[np.nonzero(is_copy)[0]], near.rows[is_copy]
    pairs = zip(np.minimum(ones, others).tolist(), np.maximum(ones, others).tolist(), strict=True)
    likeness = dict(zip(pairs, near.similarities[is_copy].tolist(), strict=True))
    return _describe(columns, sorted(likeness.items()))


def _describe(columns: Columns, groups: Iterable[tuple[Sequence[int], float]]) -> list[list[Copy]]:
    """Describe groups of rows, each with the likeness of its images."""
    rows = np.unique(np.array([row for group, _ in groups for row in group], np.int64))
    texts = (columns[name][rows].tolist() for name in ("path", "label", "split", "sha256", "fold"))
    known = dict(zip(rows.tolist(), zip(*texts, strict=True), strict=True))
    return [[Copy._make((*known[row], likeness)) for row in group] for group, likeness in groups]


def read_copies(rejects_uri: str, columns: Columns) -> list[list[Copy]]:
    """Read the copies that ingest has found, of exact ones those with several labels or splits."""
    lines = _read_lines(rejects_uri, DUPLICATES_FILE)
    several = [line for line in lines if len(line["labels"]) > 1 or len(line["splits"]) > 1]
    paths = {spell_path(path) for line in several for path in line["paths"]}
    rows = find_rows(paths, columns["path"])
    exact: dict[str, list[int]] = {}
    for row, digest in zip(rows.tolist(), columns["sha256"][rows].tolist(), strict=True):
        exact.setdefault(digest, []).append(row)
    near = [*_read_lines(rejects_uri, NEAR_DUPLICATES_FILE)]
    # Too large a cluster is not kept in one fold.
    rows = find_rows({spell_path(path) for line in near for path in line["paths"]}, columns["path"])
    folds = dict(zip(columns["path"][rows].tolist(), columns["fold"][rows].tolist(), strict=True))
    names = ("labels", "splits", "sha256", "likeness")
    return _describe(columns, [(group, 1.0) for group in exact.values()]) + [
        [
            Copy(path, label, split, sha256, folds.get(path, -1), likeness)
            for path, label, split, sha256, likeness in zip(
                map(spell_path, line["paths"]), *(line[name] for name in names), strict=True
            )
        ]
        for line in near
    ]


def _read_lines(rejects_uri: str, name: str) -> Iterator[dict[str, Any]]:
    try:
        with open_file(os.path.join(rejects_uri, name)) as file:
            yield from map(json.loads, file)
    except FileNotFoundError:  # An earlier version wrote no list of near duplicates.
        return


def list_suspects(groups: Iterable[list[Copy]], decided: Collection[str] = ()) -> list[Suspect]:
    """Return the images in use, but for `decided` ones, whose copies have another label.

    So are those outside the train split whose copies are in another split, or in another fold.
    """
    suspects: dict[str, Suspect] = {}
    for group in groups:
        used = [copy for copy in group if copy.split]
        kinds = {(copy.label, copy.split, copy.fold) for copy in used}
        twins = {kind: _find_others(used, *kind) for kind in kinds}
        for path, label, split, sha256, fold, likeness in used:
            if (near := twins[label, split, fold]) and sha256 not in decided:
                if path in suspects:
                    near = tuple(dict.fromkeys((*suspects[path].neighbors, *near)))
                image = (sha256, path, split or "", label)
                suspects[path] = Suspect(
                    *image, "near_duplicate", likeness, neighbors=near[:_MOST_TWINS]
                )
    return [*suspects.values()]


def _find_others(
    copies: Iterable[Copy], label: str, split: str | None, fold: int
) -> tuple[str, ...]:
    """Return the paths of the first images with another label, or in another split or fold."""
    others = (
        copy.path
        for copy in copies
        if copy.label != label
        or (copy.split != split and split != TRAIN)
        or (copy.fold != fold and min(copy.fold, fold) >= 0)
    )
    return tuple(itertools.islice(others, _MOST_TWINS))


def find_leaked(
    groups: Iterable[list[Copy]], split: str, *, trained: Collection[str] = (TRAIN,)
) -> set[str]:
    """Return the paths of images in `split` that have copies in `trained` splits, with these.

    So are images that have copies in another fold.
    """
    leaked: set[str] = set()
    for group in groups:
        splits = {copy.split for copy in group}
        is_divided = len({copy.fold for copy in group} - {-1}) > 1
        is_trained = split in splits and split not in trained and splits.intersection(trained)
        if is_divided or is_trained:
            leaked.update(copy.path for copy in group)
    return leaked
