"""Ingest a listing: plan the shards, have them written, and account for every file."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence, Set

from components.contract.printable import make_printable
from components.ingest.config import IngestConfig
from components.ingest.ingest_report import (
    Duplicate,
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
from components.ingest.labels import find_look_alikes
from components.ingest.listing import Listing
from components.ingest.plan_work import IngestJob
from components.ingest.shard_plan import plan_shards, write_plans
from components.ingest.stratification import stratify
from components.records.shard_files import remove_shards, write_index
from components.storage.artifact_files import remove

WritePlans = Callable[[Sequence[int], IngestJob], None]
"""Calls `write_plan` for the number of each plan, in any order, and waits until all are written."""


def ingest_listing(
    listing: Listing, config: IngestConfig, *, examples: str, rejects: str, write: WritePlans
) -> list[str]:
    """Write the shards of `listing` and their index, and account for every file.

    Args:
        listing: files to ingest.
        config: options of ingest.
        examples: path or URL of the folder for the shards.
        rejects: path or URL of the folder for the lists of rejects, skipped files and duplicates.
        write: writes the plans.

    Returns:
        The sorted names of the splits that have examples.
    """
    for warning in (*listing.notes, *find_look_alikes(listing)):
        logging.warning(make_printable(warning))
    plans = plan_shards(listing.files, config, listing.fractions)
    rule = stratify(listing, config)
    remove_shards(examples)
    job = IngestJob(listing.root, examples, config, rule, total=len(listing.files))
    write_plans(examples, plans)
    write(range(len(plans)), job)
    reports = [read_report(examples, plan) for plan in plans]
    reports, duplicates = _resolve_conflicts(reports, job, write)
    write_rejects(rejects, reports, listing, duplicates)
    check_conflicts(duplicates, config)
    check_reports(reports, listing, config)
    splits = records_per_shard(reports)
    write_index(examples, splits, labels=labels_per_split(reports))
    return sorted(splits)


def _resolve_conflicts(
    reports: list[PlanReport], job: IngestJob, write: WritePlans
) -> tuple[list[PlanReport], list[Duplicate]]:
    """Drop images with several labels, or move all copies of each into one split."""
    duplicates = find_duplicates(reports, job.rule)
    ambiguous = frozenset(conflict.sha256 for conflict in conflicts(duplicates))
    if ambiguous and job.config.conflicts == "drop":
        job = dataclasses.replace(job, dropped=ambiguous)
        return rewrite_affected_shards(reports, job, ambiguous, write), duplicates
    # The classes of an image with several labels may have different bounds.
    rule = dataclasses.replace(job.rule, uncorrected=job.rule.uncorrected | ambiguous)
    if (together := find_duplicates(reports, rule)) != duplicates:
        job = dataclasses.replace(job, rule=rule)
        reports = rewrite_affected_shards(reports, job, ambiguous, write)
    return reports, together


def rewrite_affected_shards(
    reports: list[PlanReport], job: IngestJob, digests: Set[str], write: WritePlans
) -> list[PlanReport]:
    """Rewrite the plans that contain images with these digests, and return all reports.

    Images with several labels are few, and known only when all images have been read.
    """
    affected = [n for n, report in enumerate(reports) if not digests.isdisjoint(report.digests)]
    for number in affected:
        for path in shards_of(reports[number], job.examples_uri).values():
            remove(path)
    total = sum(len(reports[number].plan.files) for number in affected)
    write(affected, dataclasses.replace(job, total=total, attempt=2))
    return [read_report(job.examples_uri, report.plan) for report in reports]
