"""Ingest a listing: plan the shards, write them, and account for every file."""

import collections
import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from components.contract import example
from components.contract.printable import make_printable
from components.contract.progress import add_progress
from components.contract.rules_of_thumb import FEW_IMAGES
from components.images.check import check_image
from components.images.check_result import Category, CheckedImage, Rejected, usable
from components.images.options import SHRINKING
from components.ingest.config import IngestConfig
from components.ingest.datasets.reading import read_images
from components.ingest.decisions import Match, Outcome, choose_labels, judge
from components.ingest.ingest_report import (
    Duplicate,
    PlanReport,
    check_reports,
    conflicts,
    find_duplicates,
    labels_per_split,
    read_report,
    records_per_shard,
    write_rejects,
    write_report,
)
from components.ingest.near_duplicates.clusters import find_clusters, list_clusters, separate
from components.ingest.near_duplicates.picture_rows import NO_PICTURE, picture_row, write_pictures
from components.ingest.shard_moves import ShardMoves, move_records
from components.ingest.shard_plan import plan_shards, read_plan, write_plans
from components.ingest.source.columns import describe_columns
from components.ingest.source.listing import ImageFile, Listing, find_look_alikes
from components.ingest.stratification import SplitRule, stratify
from components.records.shard_files import open_shard, remove_shards, shard_path, write_index
from components.records.tfrecord import RecordWriter, Value, serialize
from components.storage.artifact_files import remove
from components.storage.fetch import Content, Unread


@dataclass(frozen=True)
class IngestJob:
    """What all plans of a run share."""

    folder: str
    """Path or URL of the images."""
    examples_uri: str
    """Path or URL of the shards."""
    config: IngestConfig
    rule: SplitRule
    """Decides the split of each image."""
    total: int
    """Number of files of all plans."""
    dropped: frozenset[str] = frozenset()
    """SHA-256 digests of images to reject because they have several labels."""
    corrected: Mapping[str, str | None] = field(default_factory=dict)
    """Digest of an image → its new label, or None to remove it."""
    watched: frozenset[str] = frozenset()
    """Digests of all images that corrections name."""
    moves: ShardMoves | None = None
    """Records to move or drop instead of reading the files again."""
    attempt: int = 1
    """Number of the pass over the files, from 1."""

    def count(self, files: int) -> None:
        """Report further finished files of this process."""
        # A second pass counts from 0.
        task = f"{self.examples_uri} {self.attempt}"
        add_progress(task, files, total=self.total, unit="images")


WritePlans = Callable[[Sequence[int], IngestJob], None]
"""Calls `write_plan` for the number of each plan, in any order, and waits until all are written."""


def ingest_listing(
    listing: Listing, config: IngestConfig, *, examples: str, rejects: str, write: WritePlans
) -> list[str]:
    """Write the shards of `listing` and their index, and account for every file.

    `examples` and `rejects` are the paths or URLs of the folders to write to.

    Returns:
        The sorted names of the splits that have examples.
    """
    for warning in (*listing.notes, *find_look_alikes(listing)):
        logging.warning(make_printable(warning))
    plans = plan_shards(listing.files, config, listing.fractions)
    rule = stratify(listing, config)
    remove_shards(examples)
    job = IngestJob(
        listing.root,
        examples,
        config,
        rule,
        total=len(listing.files),
        corrected=choose_labels(listing),
        watched=frozenset(row.sha256 for row in listing.corrections.rows),
    )
    write_plans(examples, plans)
    write(range(len(plans)), job)
    reports = [read_report(examples, plan) for plan in plans]
    reports, job, outcomes = _judge_corrections(reports, job, listing, write)
    given = reports
    reports, job = _resolve_conflicts(reports, job, write)
    near: list[dict[str, Any]] = []
    if config.finds_near_duplicates:
        reports, job, near = _separate_near_duplicates(reports, job, write)
    elif config.near_duplicates != "keep":
        logging.warning("Near duplicates are not searched for: ingest.check header decodes none.")
    # Also those whose copies have been dropped.
    duplicates = find_duplicates(given, job.rule, job.corrected)
    write_rejects(rejects, reports, listing, duplicates, outcomes, near)
    check_reports(reports, duplicates, listing, config)
    splits = records_per_shard(reports)
    labels = labels_per_split(reports)
    shrinking = {name: getattr(config, name) for name in SHRINKING}
    facts: dict[str, Any] = {"labels": labels, "ingest": shrinking}
    if columns := describe_columns(file.columns for file in listing.files):
        facts["columns"] = columns
    by_hash = config.splits is None and all(file.split is None for file in listing.files)
    if by_hash and sum(sum(of_split.values()) for of_split in labels.values()) < FEW_IMAGES:
        # Training divides them again, into folds.
        facts["groups"] = _list_groups(reports, job.rule)
    write_index(examples, splits, **facts)
    return sorted(splits)


def _judge_corrections(
    reports: list[PlanReport], job: IngestJob, listing: Listing, write: WritePlans
) -> tuple[list[PlanReport], IngestJob, list[Outcome]]:
    """Undo the corrections of images that no longer have the label that a person looked at."""
    matches = [match for report in reports for match in report.matches]
    rejected = {
        reject["path"]: reject["category"]
        for report in reports
        for reject in report.rejects
        if reject["category"] != Category.REMOVED.value
    }
    outcomes, outdated = judge(listing, matches, rejected)
    if outdated := outdated & job.corrected.keys():
        kept = {sha256: of for sha256, of in job.corrected.items() if sha256 not in outdated}
        job = dataclasses.replace(job, corrected=kept)
        reports = _rewrite_affected_shards(reports, job, outdated, write)
    return reports, job, outcomes


def _list_groups(reports: Sequence[PlanReport], rule: SplitRule) -> dict[str, str]:
    """Return digest → key of its unit, if that is another, for each image kept with others."""
    pairs = (
        pair for report in reports for pair in zip(report.plan.files, report.digests, strict=True)
    )
    return {d: unit for file, d in pairs if d and (unit := rule.unit_of(file, d)) != d}


def _resolve_conflicts(
    reports: list[PlanReport], job: IngestJob, write: WritePlans
) -> tuple[list[PlanReport], IngestJob]:
    """Drop images with several labels, or move all copies of each into one split.

    Splits follow from the labels as given, so that corrections move no image.
    """
    ambiguous = _digests(conflicts(find_duplicates(reports, job.rule, job.corrected)))
    mixed = _digests(conflicts(find_duplicates(reports, job.rule, {})))
    dropped = ambiguous if job.config.conflicts == "drop" else frozenset()
    # The classes of an image with several labels may have different bounds.
    rule = dataclasses.replace(job.rule, uncorrected=job.rule.uncorrected | (mixed - dropped))
    moves = ShardMoves(job.rule, rule)
    job = dataclasses.replace(job, rule=rule, dropped=dropped)
    if dropped or (rule != moves.before and any(map(moves.affect, reports))):
        reports = _rewrite_affected_shards(reports, job, mixed, write)
    return reports, job


def _separate_near_duplicates(
    reports: list[PlanReport], job: IngestJob, write: WritePlans
) -> tuple[list[PlanReport], IngestJob, list[dict[str, Any]]]:
    """Move all images of each cluster into one split, or drop all but one of each label.

    Return also the lines of the list of near duplicates.
    """
    clusters = find_clusters(reports, job.examples_uri)
    drop = job.config.near_duplicates == "drop"
    moves = separate(clusters, reports, job.rule, corrected=job.corrected, drop=drop)
    near = list_clusters(clusters, reports, moves)
    affected = [number for number, report in enumerate(reports) if moves.affect(report)]
    total = sum(len(reports[number].plan.files) for number in affected)
    if affected:
        write(affected, dataclasses.replace(job, total=total, moves=moves, attempt=3))
        reports = [read_report(job.examples_uri, report.plan) for report in reports]
    return reports, dataclasses.replace(job, rule=moves.after), near


def _digests(duplicates: Sequence[Duplicate]) -> frozenset[str]:
    return frozenset(duplicate.sha256 for duplicate in duplicates)


def _rewrite_affected_shards(
    reports: list[PlanReport], job: IngestJob, digests: Set[str], write: WritePlans
) -> list[PlanReport]:
    """Rewrite the plans that contain images with these digests, and return all reports.

    Images with several labels are few, and known only when all images have been read.
    """
    affected = [
        n
        for n, report in enumerate(reports)
        if not digests.isdisjoint((*report.digests, *(match.sha256 for match in report.matches)))
    ]
    for number in affected:
        for path in reports[number].shards(job.examples_uri).values():
            remove(path)
    total = sum(len(reports[number].plan.files) for number in affected)
    write(affected, dataclasses.replace(job, total=total, attempt=2))
    return [read_report(job.examples_uri, report.plan) for report in reports]


def write_plan(number: int, job: IngestJob, count: Callable[[int], None] | None = None) -> None:
    """Read and check the files of a plan; write one shard per split, and a report.

    `count`, by default `job.count`, is called with the number of further finished files.
    """
    plan = read_plan(job.examples_uri, number)
    count = count or job.count
    if job.moves:
        move_records(plan, job.examples_uri, job.moves, count)
        return
    labels: dict[str, collections.Counter[str]] = {}
    rejects: list[dict[str, str]] = []
    digests: list[str] = []
    matches: list[Match] = []
    notes: collections.Counter[str] = collections.Counter()
    pictures = bytearray()
    with contextlib.ExitStack() as stack:
        writers: dict[str, RecordWriter] = {}
        for file, content in read_images(job.folder, plan.files, job.config):
            sha256 = "" if isinstance(content, Unread) else hashlib.sha256(content).hexdigest()
            if sha256 in job.watched:
                matches.append(Match(file.path, file.label, sha256))
            try:
                image = _check(content, sha256, job)
            except Rejected as rejected:
                reject = {"path": file.path, "category": rejected.category.value}
                rejects.append({**reject, "reason": str(rejected)})
                digests.append("")
                pictures += NO_PICTURE
            else:
                split = job.rule.split_of(file, sha256)
                file = file._replace(label=job.corrected.get(sha256) or file.label)
                if split not in writers:
                    path = shard_path(job.examples_uri, split, plan.index, plan.count)
                    writers[split] = stack.enter_context(open_shard(path))
                    labels[split] = collections.Counter()
                writers[split].write(serialize(_features(file, image, sha256)))
                labels[split][file.label] += 1
                digests.append(sha256)
                notes.update(image.notes)
                pictures += picture_row(image)
            count(1)
    if job.config.finds_near_duplicates:
        write_pictures(job.examples_uri, plan, pictures)
    write_report(job.examples_uri, PlanReport(plan, labels, rejects, digests, matches, notes))


def _check(content: Content, sha256: str, job: IngestJob) -> CheckedImage:
    """Return the image of a file, or raise `Rejected`."""
    content = usable(content)
    if sha256 in job.dropped:
        raise Rejected(Category.LABEL_CONFLICT, "the same image also has another label")
    if job.corrected.get(sha256, "") is None:
        raise Rejected(Category.REMOVED, "the corrections file says so")
    return check_image(content, job.config)


def _features(file: ImageFile, image: CheckedImage, sha256: str) -> dict[str, Value]:
    features: dict[str, Value] = {
        example.ENCODED: image.encoded,
        example.FORMAT: image.format,
        example.HEIGHT: image.height,
        example.WIDTH: image.width,
        example.CHANNELS: image.channels,
        example.FILENAME: file.path,
        example.FILE_SIZE: file.size,
        example.SHA256: sha256,
        example.LABEL: file.label,
    }
    if image.luminance is not None:
        features[example.LUMINANCE] = image.luminance
    return features | {example.COLUMNS + name: value for name, value in file.columns.items()}
