"""Decide what becomes of each image, once all have been read."""

import collections
import dataclasses
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from components.contract.example import EVAL, TRAIN
from components.contract.printable import quote
from components.ingest.config import IngestConfig
from components.ingest.plan.assignment import (
    Assignment,
    Images,
    find_copies,
    list_duplicates,
    report_on,
)
from components.ingest.plan.facts import PlanFacts
from components.ingest.plan.near_duplicates import find_clusters, find_files, list_clusters
from components.ingest.plan.splits import SplitRule, find_rule
from components.ingest.plan.units import bind, bind_copies
from components.ingest.source.corrections import CorrectionOutcome, judge
from components.ingest.source.listing import Listing

_DIVIDED = (
    "Almost all images of class %s are near duplicates: they are divided among the splits, as no "
    "model could know it otherwise. The accuracy on them is too high."
)
_UNDIVIDED = (
    "All images of class %s stay together, as a group or copies of one image: none of them judges "
    "a model that has seen another one."
)


class Decision(NamedTuple):
    """What became of all images."""

    assignment: Assignment
    duplicates: list[dict[str, Any]]
    """Lines of the list of duplicates."""
    outcomes: list[CorrectionOutcome]
    near: list[dict[str, Any]]
    """Lines of the list of near duplicates."""
    divided: list[str]
    """Classes whose near duplicates are divided: they have hardly any other images."""
    undivided: list[str]
    """Classes whose images all stay together, as a group or copies of one image."""


def decide(
    facts: Sequence[PlanFacts],
    assignment: Assignment,
    listing: Listing,
    config: IngestConfig,
    *,
    examples_uri: str,
    earlier: Mapping[str, str],
) -> Decision:
    """Decide what becomes of each image.

    The shards have been written by `assignment`; `earlier` is the key of an image or group → its
    split in an earlier ingest.
    """
    corrected, outcomes = _judge_corrections(facts, assignment.corrected, listing)
    images = Images(facts, corrected)
    copies = find_copies(images)
    # Splits follow from the labels as given, so that corrections move no image.
    mixed = {digest for digest, files in copies.items() if len({file.label for file in files}) > 1}

    def keep_together(bound: Mapping[str, str]) -> Assignment:
        classes = listing.tally.labels.get(None, {})
        rule = find_rule(listing, classes, Images(facts, {}), bound, mixed)
        return Assignment(_keep_splits(facts, rule, earlier), corrected)

    assignment = keep_together({})
    # Without groups, the content of an image decides about all its copies.
    shared = bind_copies(copies, images, earlier) if listing.tally.has_groups else {}
    if shared:
        assignment = keep_together(shared)
    near: list[dict[str, Any]] = []
    divided: list[str] = []
    if config.finds_near_duplicates:
        clusters = find_clusters(images, copies.keys(), examples_uri)
        files = find_files(clusters, images)
        bound, divided = bind(clusters, files, images, earlier, shared)
        if bound != shared and not _lose_images(facts, assignment, after := keep_together(bound)):
            assignment = after
        near = list_clusters(clusters, files, assignment)
    elif config.near_duplicates != "keep":
        logging.warning("Near duplicates are not searched for: ingest.check header decodes none.")
    undivided = _find_undivided(images, assignment)
    for labels, warning in ((divided, _DIVIDED), (undivided, _UNDIVIDED)):
        if labels:
            logging.warning(warning, ", ".join(map(quote, labels)))
    duplicates = list_duplicates(copies, assignment)
    return Decision(assignment, duplicates, outcomes, near, divided, undivided)


def _find_undivided(images: Images, assignment: Assignment) -> list[str]:
    """Return the classes of several images, all in one unit."""
    counts = collections.Counter[str]()
    units: dict[str, set[str]] = {}
    for file, sha256 in images:
        label = assignment.label_of(file, sha256)
        counts[label] += 1
        if len(of_label := units.setdefault(label, set())) < 2:
            # Given splits divide a class, too.
            of_label.add(file.split or assignment.rule.unit_of(file, sha256))
    return sorted(label for label, of_label in units.items() if len(of_label) == 1 < counts[label])


def _lose_images(facts: Sequence[PlanFacts], before: Assignment, after: Assignment) -> bool:
    """Return whether near duplicates, kept together, would leave a split or class without any."""
    had, have = report_on(facts, before).labels, report_on(facts, after).labels
    lost = sorted(had.keys() - have.keys())
    untrained = sorted({*had.get(TRAIN, ())} - {*have.get(TRAIN, ())})
    if lost or untrained:
        name = lost[0] if lost else f"class {quote(untrained[0])} of train"
        logging.warning(
            "Too many images look almost the same: if near duplicates stayed together, %s would "
            "have no images. They are left where they are.",
            name,
        )
        return True
    return False


def _keep_splits(
    facts: Sequence[PlanFacts], rule: SplitRule, earlier: Mapping[str, str]
) -> SplitRule:
    """Leave images in their earlier splits, unless train or eval would lose a class by that."""
    kept: dict[str, dict[str, str]] = {}
    for plan in facts if earlier else ():
        for file, fact in plan.files():
            split = earlier.get(key := rule.unit_of(file, fact.sha256))
            if file.split is None and split and split != rule.split_of(file, fact.sha256):
                kept.setdefault(file.label, {})[key] = split
    if not kept:
        return rule
    after = dataclasses.replace(rule, assigned=_flatten(kept))
    if lost := _list_missing(facts, after, kept.keys()):
        for label in {label for label, _ in lost - _list_missing(facts, rule, kept.keys())}:
            del kept[label]
        after = dataclasses.replace(rule, assigned=_flatten(kept))
    logging.info("%s images keep the split of the last ingest.", f"{len(after.assigned):,}")
    return after


def _flatten(kept: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {key: split for splits in kept.values() for key, split in splits.items()}


def _list_missing(
    facts: Sequence[PlanFacts], rule: SplitRule, labels: Iterable[str]
) -> set[tuple[str, str]]:
    """Return each of `labels` that has no image in train or eval, with that split."""
    missing = set(itertools.product(labels, (TRAIN, EVAL)))
    for plan in facts:
        for file, fact in plan.files():
            if not missing:
                return missing
            if fact.sha256 and not fact.category:
                missing.discard((file.label, rule.split_of(file, fact.sha256)))
    return missing


def _judge_corrections(
    facts: Sequence[PlanFacts], corrected: Mapping[str, str | None], listing: Listing
) -> tuple[dict[str, str | None], list[CorrectionOutcome]]:
    """Undo the corrections of images that no longer have the label that a person looked at."""
    labels: dict[str, list[tuple[str, str]]] = {row.sha256: [] for row in listing.corrections.rows}
    for plan in facts if labels else ():
        for file, fact in plan.files():
            if fact.sha256 in labels:
                labels[fact.sha256].append((file.label, fact.category))
    outcomes, outdated = judge(listing.corrections, listing.labels(), labels)
    return {
        digest: label for digest, label in corrected.items() if digest not in outdated
    }, outcomes
