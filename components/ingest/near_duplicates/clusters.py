"""Clusters of near duplicates: one split for each, or one image of each label."""

import collections
import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.example import EVAL, SPAN, TRAIN
from components.contract.printable import quote
from components.ingest.assignment import Assignment
from components.ingest.ingest_report import PlanReport, labels_per_split
from components.ingest.near_duplicates.bound_keys import bind_keys, rank
from components.ingest.near_duplicates.comparer import (
    NONE_COMPARED,
    Comparer,
    compare,
    read_likeness,
    write_likeness,
)
from components.ingest.near_duplicates.likeness import LEAST_DETAIL
from components.ingest.near_duplicates.picture_rows import Rows, read_pictures
from components.ingest.near_duplicates.similar_pairs import find_groups
from components.ingest.source.listing import ImageFile
from components.ingest.stratification import key_of

# Larger clusters, such as the frames of a fixed camera, would make a split of their own; of a few
# images, so would a quarter.
_MOST, _MOST_FRACTION, _MOST_OF_FEW = 100, 0.01, 0.25
# A chain of images, each like the next, has several that are kept; after so many, all others are.
_MOST_KEPT = 100

Corrected = Mapping[str, str | None]
Files = dict[str, list[ImageFile]]


@dataclass(frozen=True)
class Cluster:
    """Different files that show almost the same."""

    digests: tuple[str, ...]
    """The image that represents it comes first, one of the earliest span, so that images of a new
    span never change the split."""
    likeness: tuple[float, ...]
    """Likeness of each image and the first one, at most 1."""
    rows: Rows
    """The picture of each image."""
    is_too_large: bool


def _most(images: int) -> int:
    """Return the size of the largest cluster that is kept in one split."""
    return max(min(_MOST, int(_MOST_OF_FEW * images)), int(_MOST_FRACTION * images))


def find_clusters(
    reports: Sequence[PlanReport], repeated: Set[str], examples_uri: str, earlier_uri: str = ""
) -> list[Cluster]:
    """Compare all images; return the clusters in the order of their first digests.

    `repeated` are the digests of images that several files contain.

    What has been compared is kept, and pairs that an earlier ingest has compared are not again.
    """
    digests, rows = read_pictures(examples_uri, reports, repeated)
    known = read_likeness(earlier_uri, digests) if earlier_uri else NONE_COMPARED
    comparer = Comparer(rows, known)
    groups = find_groups(rows, comparer)
    members: dict[int, list[int]] = {}
    counts = np.bincount(groups, minlength=1)
    for index in np.flatnonzero(counts[groups] > 1).tolist():
        members.setdefault(int(groups[index]), []).append(index)
    most = _most(len(digests))
    alike = {digests[index] for indices in members.values() for index in indices}
    spans = _first_spans((sha256, file) for file, sha256 in _each_file(reports) if sha256 in alike)
    ordered = [
        sorted(indices, key=lambda index: (spans[digests[index]], rank(digests[index])))
        for indices in members.values()
    ]
    pairs = [(first, other) for first, *others in ordered for other in others]
    scores = iter(np.clip(comparer.score(np.array(pairs, np.int64).reshape(-1, 2)), 0, 1).tolist())
    clusters = []
    for indices in ordered:
        likeness = (1.0, *(round(score, 3) for score in itertools.islice(scores, len(indices) - 1)))
        names = tuple(digests[index] for index in indices)
        clusters.append(Cluster(names, likeness, rows[indices], len(indices) > most))
    for cluster in (cluster for cluster in clusters if cluster.is_too_large):
        logging.warning(
            "%s images look almost the same, too many for one split: they are left where they are.",
            f"{len(cluster.digests):,}",
        )
    write_likeness(examples_uri, digests, comparer.asked)
    return sorted(clusters, key=lambda cluster: cluster.digests)


def _each_file(reports: Iterable[PlanReport]) -> Iterator[tuple[ImageFile, str]]:
    for report in reports:
        for file, sha256 in zip(report.plan.files, report.digests, strict=True):
            if sha256:
                yield file, sha256


def _first_spans(files: Iterable[tuple[str, ImageFile]]) -> dict[str, int]:
    """Return key → the earliest span of its files, 0 without spans."""
    spans: dict[str, int] = {}
    for key, file in files:
        span = int(file.columns.get(SPAN, 0))
        spans[key] = min(span, spans.get(key, span))
    return spans


def _find_files(clusters: Iterable[Cluster], reports: Sequence[PlanReport]) -> Files:
    """Return digest → files, in path order, of all images in clusters."""
    wanted = {sha256 for cluster in clusters for sha256 in cluster.digests}
    files: Files = {}
    for file, sha256 in _each_file(reports):
        if sha256 in wanted:
            files.setdefault(sha256, []).append(file)
    return {sha256: sorted(found) for sha256, found in files.items()}


def separate(
    clusters: Sequence[Cluster],
    reports: Sequence[PlanReport],
    before: Assignment,
    *,
    drop: Set[str] | None,
    earlier: Mapping[str, str] | None = None,
) -> Assignment:
    """Choose a split for each cluster, and the images to reject.

    `drop` is the digests of images that several files contain; with None, no image is rejected.
    No class disappears from train or eval, unless all its images are in one cluster. If a split
    would become empty, none moves. Splits given by folders or a manifest stay. Where images of a
    cluster had a split before (`earlier`, key → split), the others follow most of them.
    """
    small = [cluster for cluster in clusters if not cluster.is_too_large]
    files = _find_files(small, reports)
    chosen = drop is not None and _choose_dropped(small, files, reports, before.corrected, drop)
    rule, moves = before.rule, dataclasses.replace(before, copies=chosen or {})
    bound = _bind(small, files, reports)
    owners = {key_of(file, sha256): (file, sha256) for sha256 in files for file in files[sha256]}
    splits = {root: rule.split_of(*owners[root]) for root in {*bound.values()}}
    splits |= _follow(earlier or {}, bound, splits)
    after = _restore_classes(splits, bound, moves, reports)
    empty = sorted(split for split, labels in after.items() if labels.total() < 1)
    if empty and drop is None:
        logging.warning(
            "Too many images look almost the same: if near duplicates stayed together, %s would "
            "have no images. They are left where they are.",
            empty[0],
        )
        return moves
    assigned = {key: splits[root] for key, root in bound.items()}
    moved = dataclasses.replace(rule, assigned={**rule.assigned, **assigned}, bound=bound)
    return dataclasses.replace(moves, rule=moved)


def _follow(
    earlier: Mapping[str, str], bound: Mapping[str, str], splits: Mapping[str, str]
) -> dict[str, str]:
    """Return the split that most images of each cluster had before: deciding key → split."""
    votes: dict[str, collections.Counter[str]] = {}
    for key, root in bound.items():
        if key in earlier:
            votes.setdefault(root, collections.Counter())[earlier[key]] += 1
    return {
        root: max(sorted(counts), key=lambda split: (counts[split], split == splits[root]))
        for root, counts in votes.items()
    }


def _bind(
    clusters: Iterable[Cluster], files: Files, reports: Sequence[PlanReport]
) -> dict[str, str]:
    """Return the key of each image or group without a given split → the key that decides for it."""
    sets = [
        {
            key_of(file, sha256)
            for sha256 in cluster.digests
            for file in files[sha256]
            if file.split is None
        }
        for cluster in clusters
    ]
    wanted: set[str] = set().union(*sets)
    every = ((key_of(file, sha256), file) for file, sha256 in _each_file(reports))
    known = [(key, file) for key, file in every if key in wanted]
    sizes = collections.Counter(key for key, _ in known)
    most = _most(sum(report.examples for report in reports))
    return bind_keys(sets, sizes, most=most, spans=_first_spans(known))


def _choose_dropped(
    clusters: Iterable[Cluster],
    files: Files,
    reports: Sequence[PlanReport],
    corrected: Corrected,
    repeated: Set[str],
) -> dict[str, str]:
    """Return the path of each image to reject → that of its twin with its label and given split."""
    dropped: dict[str, str] = {}
    kept: dict[tuple[str, str, str | None], str] = {}
    copies = ((file, sha256) for file, sha256 in _each_file(reports) if sha256 in repeated)
    for file, sha256 in sorted(copies):
        of_copies = (sha256, corrected.get(sha256) or file.label, file.split)
        if (path := kept.setdefault(of_copies, file.path)) != file.path:
            dropped[file.path] = path
    for cluster in clusters:
        parts: dict[tuple[str, str | None], list[tuple[int, str]]] = {}
        for number, sha256 in enumerate(cluster.digests):
            for file in files[sha256]:
                if file.path not in dropped:
                    kind = corrected.get(sha256) or file.label, file.split
                    parts.setdefault(kind, []).append((number, file.path))
        for part in parts.values():
            dropped |= _find_twins(cluster.rows, part)
    return dropped


def _find_twins(rows: Rows, images: list[tuple[int, str]]) -> dict[str, str]:
    """Return the path of each image that is like an earlier one that is kept → that one's path."""
    twins: dict[str, str] = {}
    for _ in range(_MOST_KEPT):
        if len(images) < 2:
            break
        (first, path), *others = images
        scores = compare(rows, np.array([(first, number) for number, _ in others]))
        alike = scores >= LEAST_DETAIL
        twins |= {other[1]: path for other, is_alike in zip(others, alike, strict=True) if is_alike}
        images = [other for other, is_alike in zip(others, alike, strict=True) if not is_alike]
    return twins


def _restore_classes(
    splits: dict[str, str],
    bound: Mapping[str, str],
    moves: Assignment,
    reports: Sequence[PlanReport],
) -> dict[str, collections.Counter[str]]:
    """Give train and eval a cluster of each class that they would lose.

    Return split → label → images.
    """
    before = labels_per_split(reports)
    after = {split: collections.Counter(labels) for split, labels in before.items()}
    members: dict[str, collections.Counter[str]] = {}
    for file, sha256 in _each_file(reports):
        label = moves.label_of(file, sha256)
        root = bound.get(key_of(file, sha256)) if file.split is None else None
        if root is not None or file.path in moves.copies:
            after[moves.rule.split_of(file, sha256)][label] -= 1
        if root is not None and file.path not in moves.copies:
            after.setdefault(splits[root], collections.Counter())[label] += 1
            members.setdefault(root, collections.Counter())[label] += 1
    for split, others in ((TRAIN, ()), (EVAL, (TRAIN,))):
        for label in sorted(label for label in before.get(split, ()) if after[split][label] < 1):
            for root in sorted(members, key=rank):
                source = after[splits[root]]
                spared = splits[root] not in others or all(
                    source[of] > count for of, count in members[root].items()
                )
                if members[root][label] and splits[root] != split and spared:
                    source.subtract(members[root])
                    after[split].update(members[root])
                    splits[root] = split
                    break
            else:
                logging.warning(
                    "All images of class %s look almost the same: %s has none.", quote(label), split
                )
    return after


def list_clusters(
    clusters: Iterable[Cluster],
    reports: Sequence[PlanReport],
    moves: Assignment,
) -> list[dict[str, Any]]:
    """Return the lines of the list of near duplicates; dropped images have no split.

    `reports` are those before the moves.
    """
    clusters = list(clusters)
    files = _find_files(clusters, reports)
    lines = []
    for number, cluster in enumerate(clusters, start=1):
        rows = [
            (
                file.path,
                moves.label_of(file, sha256),
                None if file.path in moves.copies else moves.rule.split_of(file, sha256),
                sha256,
                likeness,
            )
            for sha256, likeness in zip(cluster.digests, cluster.likeness, strict=True)
            for file in files[sha256]
        ]
        names = ("paths", "labels", "splits", "sha256", "likeness")
        lines.append({"cluster": number, **dict(zip(names, zip(*rows, strict=True), strict=True))})
    return lines
