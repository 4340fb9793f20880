"""Keep near duplicates in one split, so that no test image has its twin in train."""

import collections
import dataclasses
import itertools
import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.example import EVAL, SPAN, TRAIN
from components.contract.printable import quote
from components.ingest.plan.assignment import Assignment, PlanReport, each_image, labels_per_split
from components.ingest.plan.facts import Digests, plan_path, read_pictures
from components.ingest.plan.similar_images import ROW_BYTES, Rows, compare, connect, find_groups
from components.ingest.plan.splits import key_of
from components.ingest.source.listing import ImageFile

# Larger clusters, such as the frames of a fixed camera, would make a split of their own; of a few
# images, so would a quarter.
_MOST, _MOST_FRACTION, _MOST_OF_FEW = 100, 0.01, 0.25

Files = Mapping[str, Sequence[ImageFile]]


@dataclass(frozen=True)
class Cluster:
    """Different images that show almost the same."""

    digests: tuple[str, ...]
    likeness: tuple[float, ...]
    """Likeness of each image and the first one, at most 1."""


def rank(key: str) -> str:
    """Return a sort key that has nothing to do with the split, which the first digits decide."""
    return key[::-1]


def find_clusters(
    reports: Sequence[PlanReport], repeated: Set[str], examples_uri: str
) -> list[Cluster]:
    """Compare all images; return the clusters in the order of their first digests.

    `repeated` are the digests of images that several files contain.
    """
    digests, rows = _read_rows(examples_uri, reports, repeated)
    groups = find_groups(rows)
    counts = np.bincount(groups, minlength=1)
    members: dict[int, list[int]] = {}
    for index in np.flatnonzero(counts[groups] > 1).tolist():
        members.setdefault(int(groups[index]), []).append(index)
    clusters = []
    for indices in members.values():
        first, *others = sorted(indices, key=lambda index: rank(digests[index]))
        scores = compare(rows, np.array([(first, other) for other in others]))
        likeness = (1.0, *(round(float(score), 3) for score in np.clip(scores, 0, 1)))
        clusters.append(Cluster(tuple(digests[i] for i in (first, *others)), likeness))
    return sorted(clusters, key=lambda cluster: cluster.digests)


def _read_rows(
    examples_uri: str, reports: Sequence[PlanReport], repeated: Set[str]
) -> tuple[Digests, Rows]:
    """Return the distinct digests of all images, and the picture of each.

    The pictures are mapped from a temporary file, so that a million of them need no memory.
    """
    digests, seen = Digests(), set[str]()
    with tempfile.TemporaryFile() as joined:
        for report in reports:
            kept = []
            for number, sha256 in enumerate(report.digests):
                if sha256 and sha256 not in seen:
                    if sha256 in repeated:
                        seen.add(sha256)
                    digests.append(sha256)
                    kept.append(number)
            joined.write(read_pictures(plan_path(examples_uri, report.plan))[kept].tobytes())
        joined.flush()
        shape = (len(digests), ROW_BYTES)
        if not digests:
            return digests, np.empty(shape, np.uint8)  # An empty file cannot be mapped.
        return digests, np.memmap(joined, np.uint8, "r", shape=shape)


def _find_files(clusters: Iterable[Cluster], reports: Sequence[PlanReport]) -> Files:
    """Return digest → files, in path order, of all images in clusters."""
    wanted = {sha256 for cluster in clusters for sha256 in cluster.digests}
    files: dict[str, list[ImageFile]] = {}
    for file, sha256 in each_image(reports):
        if sha256 in wanted:
            files.setdefault(sha256, []).append(file)
    return {sha256: sorted(found) for sha256, found in files.items()}


def keep_together(
    clusters: Sequence[Cluster],
    reports: Sequence[PlanReport],
    before: Assignment,
    earlier: Mapping[str, str],
) -> Assignment:
    """Choose a split for each cluster.

    No class disappears from train or eval, unless all its images are in one cluster. If a split
    would become empty, no image moves. Splits given by folders or a manifest stay. Where images of
    a cluster had a split before (`earlier`, key → split), the others follow most of them.
    """
    files, rule = _find_files(clusters, reports), before.rule
    bound = _bind(clusters, files, reports)
    owners = {key_of(file, sha256): (file, sha256) for sha256 in files for file in files[sha256]}
    splits = {root: rule.split_of(*owners[root]) for root in {*bound.values()}}
    splits |= _follow(earlier, bound, splits)
    after = _restore_classes(splits, bound, before, reports)
    if empty := sorted(split for split, labels in after.items() if labels.total() < 1):
        logging.warning(
            "Too many images look almost the same: if near duplicates stayed together, %s would "
            "have no images. They are left where they are.",
            empty[0],
        )
        return before
    assigned = {key: splits[root] for key, root in bound.items()}
    rule = dataclasses.replace(rule, assigned={**rule.assigned, **assigned}, bound=bound)
    return dataclasses.replace(before, rule=rule)


def _bind(
    clusters: Iterable[Cluster], files: Files, reports: Sequence[PlanReport]
) -> dict[str, str]:
    """Return the key of each image or group without a given split → the key that decides for it.

    Clusters that share a group become one. A key of the earliest span decides, so that images of a
    new span never change the split.
    """
    pairs: list[tuple[str, str]] = []
    for cluster in clusters:
        members = ((file, sha256) for sha256 in cluster.digests for file in files[sha256])
        keys = [key_of(file, sha256) for file, sha256 in members if file.split is None]
        pairs += itertools.pairwise(keys)
    numbers = {
        key: number
        for number, key in enumerate(dict.fromkeys(itertools.chain.from_iterable(pairs)))
    }
    edges = np.array([(numbers[one], numbers[other]) for one, other in pairs], np.int64)
    roots = connect(len(numbers), edges.reshape(-1, 2)).tolist()
    sizes, spans = _count_images(numbers, reports)
    sets: dict[int, list[str]] = {}
    for key, root in zip(numbers, roots, strict=True):
        sets.setdefault(root, []).append(key)
    bound: dict[str, str] = {}
    for keys in sets.values():
        counts = [sizes[key] for key in keys]
        if sum(counts) - max(counts) > _most(sum(report.examples for report in reports)):
            logging.warning(
                "%s images look almost the same, too many for one split: they are left where they "
                "are.",
                f"{sum(counts):,}",
            )
            continue
        bound |= dict.fromkeys(keys, min(keys, key=lambda key: (spans[key], rank(key))))
    return bound


def _most(images: int) -> int:
    """Return how many images may join the largest group of a cluster."""
    return max(min(_MOST, int(_MOST_OF_FEW * images)), int(_MOST_FRACTION * images))


def _count_images(
    keys: Iterable[str], reports: Sequence[PlanReport]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the number of images of each key, and their earliest span, 0 without spans."""
    sizes = dict.fromkeys(keys, 0)
    spans: dict[str, int] = {}
    for file, sha256 in each_image(reports) if sizes else ():
        if (key := key_of(file, sha256)) in sizes:
            sizes[key] += 1
            span = int(file.columns.get(SPAN, 0))
            spans[key] = min(span, spans.get(key, span))
    return sizes, spans


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


def _restore_classes(
    splits: dict[str, str],
    bound: Mapping[str, str],
    before: Assignment,
    reports: Sequence[PlanReport],
) -> dict[str, collections.Counter[str]]:
    """Give train and eval a cluster of each class that they would lose.

    Return split → label → images.
    """
    after = labels_per_split(reports)
    wanted = {split: sorted(after.get(split, ())) for split in (TRAIN, EVAL)}
    members: dict[str, collections.Counter[str]] = {}
    for file, sha256 in each_image(reports):
        root = bound.get(key_of(file, sha256)) if file.split is None else None
        if root is not None:
            label = before.label_of(file, sha256)
            after[before.rule.split_of(file, sha256)][label] -= 1
            after.setdefault(splits[root], collections.Counter())[label] += 1
            members.setdefault(root, collections.Counter())[label] += 1
    for split, labels in wanted.items():
        for label in labels:
            if after[split][label] < 1:
                root = _find_spare(label, split, splits, members, after)
                if root is None:
                    warning = "All images of class %s look almost the same: %s has none."
                    logging.warning(warning, quote(label), split)
                    continue
                after[splits[root]].subtract(members[root])
                after[split].update(members[root])
                splits[root] = split
    return after


def _find_spare(
    label: str,
    split: str,
    splits: Mapping[str, str],
    members: Mapping[str, collections.Counter[str]],
    after: Mapping[str, collections.Counter[str]],
) -> str | None:
    """Return a cluster with images of a label to move into a split; train keeps all its classes."""
    for root in sorted(members, key=rank):
        source = after[splits[root]]
        is_spared = splits[root] != TRAIN or all(
            source[other] > count for other, count in members[root].items()
        )
        if members[root][label] and splits[root] != split and is_spared:
            return root
    return None


def list_clusters(
    clusters: Sequence[Cluster], reports: Sequence[PlanReport], after: Assignment
) -> list[dict[str, Any]]:
    """Return the lines of the list of near duplicates; `reports` are those before the moves."""
    files = _find_files(clusters, reports)
    lines = []
    for number, cluster in enumerate(clusters, start=1):
        rows = [
            (
                file.path,
                after.label_of(file, sha256),
                after.rule.split_of(file, sha256),
                sha256,
                likeness,
            )
            for sha256, likeness in zip(cluster.digests, cluster.likeness, strict=True)
            for file in files[sha256]
        ]
        names = ("paths", "labels", "splits", "sha256", "likeness")
        lines.append({"cluster": number, **dict(zip(names, zip(*rows, strict=True), strict=True))})
    return lines
