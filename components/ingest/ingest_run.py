"""Ingest, from a listing to its shards; Beam's workers or this process carry out the plans."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

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
from components.ingest.shard_plan import ShardPlan, plan_shards
from components.records.shard_files import remove_shards, write_index
from components.storage.artifact_files import remove

WritePlans = Callable[[Sequence[ShardPlan], IngestJob], None]
"""Calls `write_plan` for each plan, in any order, and returns when all are written."""


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
    remove_shards(examples)
    job = IngestJob(listing.root, examples, config, listing.fractions, total=len(listing.files))
    write(plans, job)
    reports = [read_report(examples, plan) for plan in plans]
    duplicates = find_duplicates(reports, listing.fractions)
    if config.conflicts == "drop" and conflicts(duplicates):
        reports = _drop(reports, job, {c.sha256 for c in conflicts(duplicates)}, write)
    write_rejects(rejects, reports, listing, duplicates)
    check_conflicts(duplicates, config)
    check_reports(reports, listing, config)
    splits = records_per_shard(reports)
    write_index(examples, splits, labels=labels_per_split(reports))
    return sorted(splits)


def _drop(
    reports: list[PlanReport], job: IngestJob, digests: set[str], write: WritePlans
) -> list[PlanReport]:
    """Write the plans again that hold images with these digests, without them.

    Which images have several labels is known only when all are read, and there are few.
    """
    affected = [report for report in reports if not digests.isdisjoint(report.digests)]
    for report in affected:
        for path in shards_of(report, job.examples_uri).values():
            remove(path)
    total = sum(len(report.plan.files) for report in affected)
    again = dataclasses.replace(job, total=total, dropped=frozenset(digests))
    write([report.plan for report in affected], again)
    return [read_report(job.examples_uri, report.plan) for report in reports]
