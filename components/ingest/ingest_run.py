"""Ingest, from a listing to its shards; Beam's workers or this process carry out the plans."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence, Set

from components.contract.example import EVAL, TRAIN
from components.ingest.config import IngestConfig
from components.ingest.ingest_report import (
    PlanReport,
    check_conflicts,
    check_reports,
    conflicts,
    find_duplicates,
    labels_per_split,
    read_report,
    records_per_shard,
    shards_of,
    write_rejects,
)
from components.ingest.listing import Listing
from components.ingest.plan_work import IngestJob
from components.ingest.shard_plan import plan_shards, write_plans
from components.ingest.stratification import stratify
from components.records.shard_files import remove_shards, write_index
from components.storage.artifact_files import remove

WritePlans = Callable[[Sequence[int], IngestJob], None]
"""Calls `write_plan` for each number of a plan, in any order, and returns when all are written."""


def ingest_listing(
    listing: Listing, config: IngestConfig, *, examples: str, rejects: str, write: WritePlans
) -> list[str]:
    """Write the shards of `listing` and their index, and account for every file.

    Args:
        listing: what to ingest.
        config: how.
        examples: folder or URL for the shards.
        rejects: folder or URL for the lists of rejects, skipped files and duplicates.
        write: carries out the plans.

    Returns:
        The splits that have examples, sorted.

    Raises:
        DataError: too many rejects, or a class with no usable image to train on.
    """
    if listing.note:
        logging.warning(listing.note)
    plans = plan_shards(listing.files, config, listing.fractions)
    rule = stratify(listing, config)
    remove_shards(examples)
    job = IngestJob(listing.root, examples, config, rule, total=len(listing.files))
    write_plans(examples, plans)
    write(range(len(plans)), job)
    reports = [read_report(examples, plan) for plan in plans]
    duplicates = find_duplicates(reports, rule)
    ambiguous = frozenset(conflict.sha256 for conflict in conflicts(duplicates))
    if ambiguous and config.conflicts == "drop":
        reports = _again(reports, dataclasses.replace(job, dropped=ambiguous), ambiguous, write)
    elif ambiguous:
        # Their classes may have different bounds.
        rule = dataclasses.replace(rule, uncorrected=rule.uncorrected | ambiguous)
        if (together := find_duplicates(reports, rule)) != duplicates:
            reports = _again(reports, dataclasses.replace(job, rule=rule), ambiguous, write)
            duplicates = together
    write_rejects(rejects, reports, listing, duplicates)
    check_conflicts(duplicates, config)
    check_reports(reports, listing, config)
    _warn_of_unjudged(labels_per_split(reports))
    splits = records_per_shard(reports)
    write_index(examples, splits, labels=labels_per_split(reports))
    return sorted(splits)


def _warn_of_unjudged(found: Mapping[str, Mapping[str, int]]) -> None:
    unjudged = sorted(found[TRAIN].keys() - found[EVAL].keys())
    if unjudged:
        others = f" and {len(unjudged) - 1} more" if unjudged[1:] else ""
        logging.warning(
            f"The eval split has no image of class {unjudged[0]!r}{others}: nothing will tell how "
            f"well the model knows it. Add images."
        )


def _again(
    reports: list[PlanReport], job: IngestJob, digests: Set[str], write: WritePlans
) -> list[PlanReport]:
    """Write the plans again that hold images with these digests, as `job` now says.

    Which images have several labels is known only when all are read, and there are few.
    """
    affected = [n for n, report in enumerate(reports) if not digests.isdisjoint(report.digests)]
    for number in affected:
        for path in shards_of(reports[number], job.examples_uri).values():
            remove(path)
    total = sum(len(reports[number].plan.files) for number in affected)
    write(affected, dataclasses.replace(job, total=total, attempt=2))
    return [read_report(job.examples_uri, report.plan) for report in reports]
