"""Ingest a listing: plan the shards, write them, and account for every file."""

import dataclasses
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from components.contract.artifact_files import on_disk
from components.contract.example import EVAL, TEST, TRAIN
from components.contract.printable import make_printable
from components.contract.rules_of_thumb import FEW_IMAGES
from components.host.machine import pause_collection
from components.host.progress import report_result
from components.images.check_result import Category
from components.images.options import SHRINKING
from components.ingest.assignment import Assignment
from components.ingest.config import IngestConfig
from components.ingest.decisions import Outcome, choose_labels, judge
from components.ingest.earlier_shards import (
    Earlier,
    TakenOver,
    plan_key,
    read_earlier,
    reuse_key,
    take_over,
)
from components.ingest.ingest_report import (
    PlanReport,
    check_reports,
    conflicts,
    find_copies,
    labels_per_split,
    list_duplicates,
    records_per_shard,
    report_on,
    write_rejects,
)
from components.ingest.near_duplicates.clusters import find_clusters, list_clusters, separate
from components.ingest.plan_facts import Contents, Fact, PlanFacts, plan_path, read_facts
from components.ingest.plan_writer import IngestJob
from components.ingest.shard_plan import ShardPlan, plan_shards, write_plans
from components.ingest.source.columns import describe_columns
from components.ingest.source.listing import ImageFile, Listing, find_look_alikes
from components.ingest.stratification import SplitRule, find_rule, key_of, stratify
from components.records.shard_files import remove_shards, write_index
from components.storage.row_table import RowTables

# Of the images of a bucket; few of them are new then.
_MOSTLY = 0.9

WritePlans = Callable[[Sequence[int], IngestJob], None]
"""Calls `write_plan` for the number of each plan, in any order, and waits until all are written."""


class Ingested(NamedTuple):
    """The result of ingest."""

    splits: list[str]
    """Sorted names of the splits that have examples."""
    read: int
    """Number of files that no earlier ingest had read."""


class _Decided(NamedTuple):
    """What became of all images."""

    assignment: Assignment
    copies: Mapping[str, Sequence[ImageFile]]
    """Digest → files of images that several files contain, before any were dropped."""
    reports: Sequence[PlanReport]
    """Reports on what has been written so far, as it should be."""
    outcomes: list[Outcome]
    near: list[dict[str, Any]]
    """Lines of the list of near duplicates."""


def ingest_listing(
    listing: Listing,
    config: IngestConfig,
    *,
    examples: str,
    rejects: str,
    write: WritePlans,
    code: str = "",
) -> Ingested:
    """Write the shards of `listing` and their index, and account for every file.

    Args:
        listing: the files.
        config: options of ingest.
        examples: path or URL of the folder of the shards.
        rejects: path or URL of the folder of the lists.
        write: writes plans.
        code: digest of the code of ingest; only with it, earlier shards are used again.
    """
    for warning in (*listing.notes, *find_look_alikes(listing)):
        logging.warning(make_printable(warning))
    remove_shards(examples)
    key = reuse_key(config, code)
    division = json.dumps([listing.fractions, listing.own_fractions], sort_keys=True)
    with pause_collection():
        earlier = Earlier()
        if code:
            earlier = read_earlier(examples, config, key=key, division=division)
        plans = plan_shards(listing.files, config, listing.fractions, earlier.plans)
        taken = take_over(plans, earlier, examples, config)
        job = _begin(plans, taken, earlier, listing, config, examples)
    if numbers := [number for number in range(len(plans)) if number not in taken.facts]:
        write_plans(examples, plans, numbers)
        write(numbers, job)
    with pause_collection():
        tables, facts = RowTables(Fact._make), []
        for number, plan in enumerate(plans):
            of = taken.facts.get(number) or read_facts(plan_path(examples, plan), plan)
            facts.append(dataclasses.replace(of, facts=tables.keep(of.facts)))
        decided = _decide(facts, job, listing, earlier)
    reports, moved = _rearrange(facts, decided, job, write)
    with pause_collection():
        index = _account(reports, decided, listing, config, rejects)
        if code:
            contents: dict[str, dict[str, tuple[str, str]]] = {}
            for number, of in enumerate(facts):
                for split, shards in (moved.get(number) or of.contents()).items():
                    contents.setdefault(split, {}).update(shards)
            index["contents"] = contents
    if code:
        index |= {"made_by": key, "divided_by": division, "planned_by": plan_key(config)}
    write_index(examples, **index)
    return Ingested(sorted(index["splits"]), job.unread)


def _begin(
    plans: Sequence[ShardPlan],
    taken: TakenOver,
    earlier: Earlier,
    listing: Listing,
    config: IngestConfig,
    examples: str,
) -> IngestJob:
    """Say how many files are read, and return the job that writes the remaining plans."""
    files, unread = len(listing.files), len(listing.files) - len(taken.digests)
    if files and earlier.uri:
        report_result(f"{files:,} images: {files - unread:,} unchanged, {unread:,} read")
    else:
        logging.info("There are no earlier shards of these images here: all are read.")
    return IngestJob(
        listing.root,
        examples,
        config,
        Assignment(
            _guess_rule(listing, config, taken.digests, earlier.splits), choose_labels(listing)
        ),
        total=sum(len(plan.files) for n, plan in enumerate(plans) if n not in taken.facts),
        unread=unread,
        has_grown=bool(taken.digests),
        earlier=taken.sources,
    )


def _account(
    reports: Sequence[PlanReport],
    decided: _Decided,
    listing: Listing,
    config: IngestConfig,
    rejects: str,
) -> dict[str, Any]:
    """Write the lists of rejects, check that all is well, and return the facts of the index."""
    # Also those whose copies have been dropped.
    rule, corrected = decided.assignment.rule, decided.assignment.corrected
    duplicates = list_duplicates(decided.copies, rule, corrected)
    write_rejects(rejects, reports, listing, duplicates, decided.outcomes, decided.near)
    check_reports(reports, duplicates, listing, config)
    labels = labels_per_split(reports)
    shrinking = {name: getattr(config, name) for name in SHRINKING}
    found: dict[str, Any] = {
        "splits": records_per_shard(reports),
        "labels": labels,
        "ingest": shrinking,
    }
    if columns := describe_columns(listing.columns()):
        found["columns"] = columns
    by_hash = config.splits is None and listing.tally.labels.keys() - {TEST} == {None}
    if by_hash and sum(sum(labels.get(of, {}).values()) for of in (TRAIN, EVAL)) < FEW_IMAGES:
        # Training divides them again, into folds.
        found["groups"] = _list_groups(reports, rule)
    return found


def _guess_rule(
    listing: Listing,
    config: IngestConfig,
    known: Mapping[str, str],
    splits: Mapping[str, str],
) -> SplitRule:
    """Return the rule to write shards by before all images are known.

    Reading small classes twice costs less than moving records, unless many come from a bucket.
    """
    few_are_new = len(known) >= _MOSTLY * len(listing.files)
    if on_disk(listing.root) or few_are_new:
        rule = stratify(listing, config, known)
        return dataclasses.replace(rule, assigned=splits)
    return SplitRule(listing.fractions, own_fractions=listing.own_fractions)


def _decide(
    facts: Sequence[PlanFacts], job: IngestJob, listing: Listing, earlier: Earlier
) -> _Decided:
    """Decide what becomes of each image, now that all are known."""
    digests = (
        (file, fact.sha256)
        for of in facts
        for file, fact in zip(of.plan.files, of.facts, strict=True)
        if fact.sha256
    )
    rule = find_rule(listing, listing.labels_per_split().get(None, {}), digests)
    rule = _keep_splits(facts, rule, earlier.splits)
    assignment = dataclasses.replace(job.assignment, rule=rule)
    given, outcomes, reports = _judge_corrections(facts, assignment, listing)
    copies = find_copies(reports)
    assignment = _resolve_conflicts(copies, given, job.config)
    if assignment != given:
        reports = [report_on(of, assignment, frozenset()) for of in facts]
    near: list[dict[str, Any]] = []
    if job.config.finds_near_duplicates:
        before, repeated = assignment, copies.keys()
        clusters = find_clusters(reports, repeated, job.examples_uri, earlier.uri)
        drop = repeated if job.config.near_duplicates == "drop" else None
        assignment = separate(clusters, reports, before, drop=drop, earlier=earlier.splits)
        near = list_clusters(clusters, reports, assignment)
        if assignment != before:
            reports = [report_on(of, assignment, frozenset()) for of in facts]
    elif job.config.near_duplicates != "keep":
        logging.warning("Near duplicates are not searched for: ingest.check header decodes none.")
    return _Decided(assignment, copies, reports, outcomes, near)


def _keep_splits(
    facts: Sequence[PlanFacts], rule: SplitRule, earlier: Mapping[str, str]
) -> SplitRule:
    """Leave images in their earlier splits, unless train or eval would lose a class by that."""
    kept: dict[str, dict[str, str]] = {}
    for of in facts if earlier else ():
        for file, fact in zip(of.plan.files, of.facts, strict=True):
            split = earlier.get(key := key_of(file, fact.sha256)) if file.split is None else None
            if split and split != rule.split_of(file, fact.sha256):
                kept.setdefault(file.label, {})[key] = split
    if not kept:
        return rule
    after = dataclasses.replace(rule, assigned=_join(kept))
    if lost := _list_missing(facts, after, kept.keys()):
        for label in {label for label, _ in lost - _list_missing(facts, rule, kept.keys())}:
            del kept[label]
        after = dataclasses.replace(rule, assigned=_join(kept))
    logging.info("%s images keep the split of the last ingest.", f"{len(after.assigned):,}")
    return after


def _join(kept: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {key: split for of_label in kept.values() for key, split in of_label.items()}


def _list_missing(
    facts: Sequence[PlanFacts], rule: SplitRule, labels: Iterable[str]
) -> set[tuple[str, str]]:
    """Return each of `labels` that has no image in train or eval, with that split."""
    missing = set(itertools.product(labels, (TRAIN, EVAL)))
    for of in facts:
        for file, fact in zip(of.plan.files, of.facts, strict=True):
            if not missing:
                return missing
            if fact.sha256 and not fact.category:
                missing.discard((file.label, rule.split_of(file, fact.sha256)))
    return missing


def _judge_corrections(
    facts: Sequence[PlanFacts], assignment: Assignment, listing: Listing
) -> tuple[Assignment, list[Outcome], list[PlanReport]]:
    """Undo the corrections of images that no longer have the label that a person looked at."""
    watched = frozenset(row.sha256 for row in listing.corrections.rows)
    reports = [report_on(of, assignment, watched) for of in facts]
    matches = [match for report in reports for match in report.matches]
    rejected = {
        reject["path"]: reject["category"]
        for report in reports
        for reject in report.rejects
        if reject["category"] != Category.REMOVED.value
    }
    outcomes, outdated = judge(listing, matches, rejected)
    corrected = assignment.corrected
    if outdated & corrected.keys():
        kept = {sha256: label for sha256, label in corrected.items() if sha256 not in outdated}
        assignment = dataclasses.replace(assignment, corrected=kept)
        reports = [report_on(of, assignment, watched) for of in facts]
    return assignment, outcomes, reports


def _list_groups(reports: Sequence[PlanReport], rule: SplitRule) -> dict[str, str]:
    """Return digest → key of its unit, if that is another, for each image kept with others."""
    pairs = (
        pair for report in reports for pair in zip(report.plan.files, report.digests, strict=True)
    )
    return {d: unit for file, d in pairs if d and (unit := rule.unit_of(file, d)) != d}


def _resolve_conflicts(
    copies: Mapping[str, Sequence[ImageFile]], assignment: Assignment, config: IngestConfig
) -> Assignment:
    """Drop images with several labels, or move all copies of each into one split.

    Splits follow from the labels as given, so that corrections move no image.
    """
    rule = assignment.rule
    ambiguous, mixed = (
        {of.sha256 for of in conflicts(list_duplicates(copies, rule, corrected))}
        for corrected in (assignment.corrected, {})
    )
    dropped = frozenset(ambiguous if config.conflicts == "drop" else ())
    # The classes of an image with several labels may have different bounds.
    rule = dataclasses.replace(rule, uncorrected=rule.uncorrected | (mixed - dropped))
    return dataclasses.replace(assignment, rule=rule, dropped=dropped)


def _rearrange(
    facts: Sequence[PlanFacts], decided: _Decided, job: IngestJob, write: WritePlans
) -> tuple[list[PlanReport], dict[int, Contents]]:
    """Rewrite the plans whose shards do not hold what they should.

    Return the reports on all, and the contents of those that were rewritten, by number.
    """
    reports, assignment = list(decided.reports), decided.assignment
    contents: dict[int, Contents] = {}
    affected = [number for number, report in enumerate(reports) if not report.is_arranged]
    if not affected:
        return reports, contents
    total = sum(len(facts[number].plan.files) for number in affected)
    again = dataclasses.replace(job, assignment=assignment, total=total, unread=0, again=True)
    write_plans(job.examples_uri, [of.plan for of in facts], affected)
    write(affected, again)
    for number in affected:
        plan = facts[number].plan
        found = read_facts(plan_path(job.examples_uri, plan), plan)
        reports[number] = report_on(found, assignment, frozenset())
        contents[number] = found.contents()
    return reports, contents
