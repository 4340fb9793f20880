"""Decide what becomes of each image, once all have been read."""

import collections
import dataclasses
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from components.contract.example import EVAL, TRAIN
from components.contract.printable import quote
from components.images.check_result import Category
from components.ingest.config import IngestConfig
from components.ingest.plan.assignment import (
    Assignment,
    PlanReport,
    conflicts,
    each_image,
    find_copies,
    labels_per_split,
    list_duplicates,
    report_on,
)
from components.ingest.plan.facts import PlanFacts
from components.ingest.plan.near_duplicates import find_clusters, find_files, list_clusters
from components.ingest.plan.splits import SplitRule, find_rule
from components.ingest.plan.units import bind, bind_copies
from components.ingest.source.corrections import CorrectionOutcome, judge
from components.ingest.source.listing import ImageFile, Listing

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
    copies: Mapping[str, Sequence[ImageFile]]
    """Digest → files of images that several files contain, before any were dropped."""
    reports: Sequence[PlanReport]
    """Reports on what has been written so far, as it should be."""
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
    rule = _find_rule(facts, listing, earlier)
    assignment = dataclasses.replace(assignment, rule=rule)
    given, outcomes, reports = _judge_corrections(facts, assignment, listing)
    copies = find_copies(reports)
    assignment = _resolve_conflicts(copies, given, config)
    if assignment != given:
        reports = _report(facts, assignment)

    def keep_together(bound: Mapping[str, str]) -> tuple[Assignment, list[PlanReport]]:
        rule = _find_rule(facts, listing, earlier, bound, assignment.rule.uncorrected)
        together = dataclasses.replace(assignment, rule=rule)
        return together, _report(facts, together)

    # Without groups, the content of an image decides about all its copies.
    shared = bind_copies(copies, reports, earlier) if listing.tally.has_groups else {}
    if shared:
        assignment, reports = keep_together(shared)
    near: list[dict[str, Any]] = []
    divided: list[str] = []
    if config.finds_near_duplicates:
        clusters = find_clusters(reports, copies.keys(), examples_uri)
        files = find_files(clusters, reports)
        bound, divided = bind(clusters, files, reports, earlier, shared)
        after = keep_together(bound) if bound != shared else (assignment, reports)
        if not _lose_images(reports, after[1]):
            assignment, reports = after
        near = list_clusters(clusters, files, assignment)
    elif config.near_duplicates != "keep":
        logging.warning("Near duplicates are not searched for: ingest.check header decodes none.")
    undivided = _find_undivided(reports, assignment.rule)
    for labels, warning in ((divided, _DIVIDED), (undivided, _UNDIVIDED)):
        if labels:
            logging.warning(warning, ", ".join(map(quote, labels)))
    return Decision(assignment, copies, reports, outcomes, near, divided, undivided)


def _find_undivided(reports: Sequence[PlanReport], rule: SplitRule) -> list[str]:
    """Return the classes of several images, all in one unit of a rule."""
    counts = collections.Counter[str]()
    units: dict[str, set[str]] = {}
    for file, sha256 in each_image(reports):
        counts[file.label] += 1
        if len(of_label := units.setdefault(file.label, set())) < 2:
            # Given splits divide a class, too.
            of_label.add(rule.unit_of(file, sha256) if file.split is None else file.split)
    return sorted(label for label, found in units.items() if len(found) == 1 < counts[label])


def _report(
    facts: Sequence[PlanFacts], assignment: Assignment, watched: Set[str] = frozenset()
) -> list[PlanReport]:
    return [report_on(plan, assignment, watched) for plan in facts]


def _find_rule(
    facts: Sequence[PlanFacts],
    listing: Listing,
    earlier: Mapping[str, str],
    bound: Mapping[str, str] | None = None,
    uncorrected: frozenset[str] = frozenset(),
) -> SplitRule:
    known = (pair for plan in facts for pair in plan.files())
    digests = ((file, fact.sha256) for file, fact in known if fact.sha256)
    rule = find_rule(listing, listing.labels_per_split().get(None, {}), digests, bound)
    rule = dataclasses.replace(rule, uncorrected=rule.uncorrected | uncorrected)
    return _keep_splits(facts, rule, earlier)


def _lose_images(before: Sequence[PlanReport], after: Sequence[PlanReport]) -> bool:
    """Return whether near duplicates, kept together, would leave a split or class without any."""
    had, have = labels_per_split(before), labels_per_split(after)
    lost = sorted(had.keys() - have.keys())
    untrained, unjudged = (
        sorted(had.get(split, {}).keys() - have.get(split, {}).keys()) for split in (TRAIN, EVAL)
    )
    if lost or untrained:
        name = lost[0] if lost else f"class {quote(untrained[0])} of train"
        logging.warning(
            "Too many images look almost the same: if near duplicates stayed together, %s would "
            "have no images. They are left where they are.",
            name,
        )
        return True
    for label in unjudged:
        warning = "All images of class %s look almost the same: eval has none."
        logging.warning(warning, quote(label))
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
    facts: Sequence[PlanFacts], assignment: Assignment, listing: Listing
) -> tuple[Assignment, list[CorrectionOutcome], list[PlanReport]]:
    """Undo the corrections of images that no longer have the label that a person looked at."""
    watched = frozenset(row.sha256 for row in listing.corrections.rows)
    reports = _report(facts, assignment, watched)
    matches = [match for report in reports for match in report.matches]
    rejected = {
        reject["path"]: reject["category"]
        for report in reports
        for reject in report.rejects
        if reject["category"] != Category.REMOVED.value
    }
    outcomes, outdated = judge(listing.corrections, listing.labels(), matches, rejected)
    corrected = assignment.corrected
    if outdated & corrected.keys():
        kept = {sha256: label for sha256, label in corrected.items() if sha256 not in outdated}
        assignment = dataclasses.replace(assignment, corrected=kept)
        reports = _report(facts, assignment, watched)
    return assignment, outcomes, reports


def _resolve_conflicts(
    copies: Mapping[str, Sequence[ImageFile]], assignment: Assignment, config: IngestConfig
) -> Assignment:
    """Drop images with several labels, or move all copies of each into one split.

    Splits follow from the labels as given, so that corrections move no image.
    """
    rule = assignment.rule
    ambiguous, mixed = (
        {image.sha256 for image in conflicts(list_duplicates(copies, rule, corrected))}
        for corrected in (assignment.corrected, {})
    )
    dropped = frozenset(ambiguous if config.conflicts == "drop" else ())
    # The classes of an image with several labels may have different bounds.
    rule = dataclasses.replace(rule, uncorrected=rule.uncorrected | (mixed - dropped))
    return dataclasses.replace(assignment, rule=rule, dropped=dropped)
