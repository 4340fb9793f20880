"""Collect the workers' reports on every file, check them, and write the lists of rejects."""

import collections
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from components.contract.errors import DataError
from components.contract.ingest_files import (
    DUPLICATES_FILE,
    NEAR_DUPLICATES_FILE,
    REJECTS_FILE,
    SKIPPED_FILE,
    SUMMARY_FILE,
)
from components.contract.printable import quote
from components.images.check_result import Category
from components.ingest.assignment import Assignment
from components.ingest.config import IngestConfig
from components.ingest.decisions import Match, Outcome, summarize, write_outcomes
from components.ingest.digests import Digests, find_repeated
from components.ingest.plan_facts import PlanFacts
from components.ingest.shard_plan import ShardPlan
from components.ingest.source.listing import ImageFile, Listing, find_look_alikes
from components.ingest.stratification import SplitRule, require_splits
from components.records.shard_files import shard_path
from components.storage.artifact_files import make_folders, open_file

_NAMED = 3
# Images dropped as copies, for their labels, or by a person, are usable.
_USABLE = (
    Category.LABEL_CONFLICT.value,
    Category.NEAR_DUPLICATE.value,
    Category.REMOVED.value,
)


@dataclass(frozen=True)
class PlanReport:
    """The result of one plan."""

    plan: ShardPlan
    labels: Mapping[str, Mapping[str, int]]
    """Split → label → examples."""
    rejects: Sequence[dict[str, str]]
    """Path, category and reason."""
    digests: Digests
    """Hexadecimal SHA-256 of each file of the plan; empty for rejects."""
    matches: Sequence[Match] = ()
    """Files, rejected or not, whose content is named by a correction."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """How images differ from their files → number of images."""
    is_arranged: bool = True
    """Whether each image is in the right shard, with the right label."""

    @property
    def examples(self) -> int:
        """Number of examples in all splits."""
        return sum(sum(labels.values()) for labels in self.labels.values())

    def shards(self, examples_uri: str) -> dict[str, str]:
        """Return split → path of the shard of the plan."""
        index, count = self.plan.index, self.plan.count
        return {split: shard_path(examples_uri, split, index, count) for split in self.labels}


@dataclass(frozen=True)
class Duplicate:
    """An image that several files contain, byte for byte."""

    sha256: str
    paths: tuple[str, ...]
    labels: tuple[str, ...]
    """Distinct labels: more than one is a conflict."""
    splits: tuple[str, ...]
    """Distinct splits: with more than one, the model is tested on training images."""


def report_on(facts: PlanFacts, assignment: Assignment, watched: Set[str]) -> PlanReport:
    """Return what becomes of the files of a plan; `watched` are the digests in corrections."""
    labels = collections.defaultdict[str, collections.Counter[str]](collections.Counter)
    rejects: list[dict[str, str]] = []
    digests = Digests()
    matches: list[Match] = []
    notes = collections.Counter[str]()
    is_arranged = True
    for file, fact in zip(facts.plan.files, facts.facts, strict=True):
        place = assignment.place(file, fact)
        is_arranged = is_arranged and place[:2] == (fact.split, fact.label)
        if fact.sha256 in watched:
            matches.append(Match(file.path, file.label, fact.sha256))
        if place.split:
            labels[place.split][place.label] += 1
            digests.append(fact.sha256)
            if fact.notes:
                notes.update(fact.notes)
        else:
            reject = {"path": file.path, "category": place.category, "reason": place.reason}
            rejects.append(reject)
            digests.append("")
    return PlanReport(facts.plan, dict(labels), rejects, digests, matches, notes, is_arranged)


def find_copies(reports: Sequence[PlanReport]) -> dict[str, list[ImageFile]]:
    """Return digest → files of each image that several files contain."""
    repeated = find_repeated(report.digests for report in reports)
    files: dict[str, list[ImageFile]] = {}
    for report in reports if repeated else ():
        for file, sha256 in zip(report.plan.files, report.digests, strict=True):
            if sha256 in repeated:
                files.setdefault(sha256, []).append(file)
    return files


def list_duplicates(
    copies: Mapping[str, Sequence[ImageFile]],
    rule: SplitRule,
    corrected: Mapping[str, str | None],
) -> list[Duplicate]:
    """Describe the copies that `find_copies` has found, sorted by first path.

    `corrected` is the digest of a corrected image → its label.
    """
    found = []
    for sha256, files in copies.items():
        entries = sorted(
            (file.path, corrected.get(sha256) or file.label, rule.split_of(file, sha256))
            for file in files
        )
        paths, labels, in_splits = zip(*entries, strict=True)
        distinct = (tuple(sorted(set(names))) for names in (labels, in_splits))
        found.append(Duplicate(sha256, paths, *distinct))
    return sorted(found, key=lambda duplicate: duplicate.paths)


def conflicts(duplicates: Iterable[Duplicate]) -> list[Duplicate]:
    """Return the images with more than one label."""
    return [duplicate for duplicate in duplicates if len(duplicate.labels) > 1]


def write_rejects(
    rejects_uri: str,
    reports: Sequence[PlanReport],
    listing: Listing,
    duplicates: Sequence[Duplicate],
    outcomes: Sequence[Outcome],
    clusters: Sequence[Mapping[str, Any]],
) -> None:
    """Write the lists of rejected, skipped and duplicate files and corrections, and a summary.

    `clusters` are the lines of the list of near duplicates.
    """
    rejects = sorted((r for report in reports for r in report.rejects), key=lambda r: r["path"])
    for reject in rejects:
        # TFX removes the outputs of a failed node; the log keeps the list.
        if reject["category"] not in (Category.REMOVED.value, Category.NEAR_DUPLICATE.value):
            logging.warning("Rejected %(path)s: %(category)s, %(reason)s", reject)
    for conflict in conflicts(duplicates):
        logging.warning("Labels %s for the same image: %s", conflict.labels, conflict.paths)
    summary: dict[str, Any] = {
        "files": len(listing.files) + len(listing.skipped),
        "examples": sum(report.examples for report in reports),
        "rejected": len(rejects),
        "skipped": len(listing.skipped),
        "rejected_by_category": _count(reject["category"] for reject in rejects),
        "skipped_by_reason": _count(skipped.reason for skipped in listing.skipped),
        "duplicates": sum(len(duplicate.paths) - 1 for duplicate in duplicates),
        "label_conflicts": len(conflicts(duplicates)),
        "in_several_splits": sum(len(duplicate.splits) > 1 for duplicate in duplicates),
        **summarize_clusters(clusters),
        "look_alikes": find_look_alikes(listing),
        "notes": dict(sum((collections.Counter(r.notes) for r in reports), collections.Counter())),
    }
    for note, count in summary["notes"].items():
        logging.warning("%s of %s images: %s.", f"{count:,}", f"{len(listing.files):,}", note)
    make_folders(rejects_uri)
    if listing.corrections.path:
        summary["corrections"] = summarize(listing, outcomes)
        write_outcomes(rejects_uri, outcomes)
    _write_lines(rejects_uri, REJECTS_FILE, rejects)
    _write_lines(rejects_uri, SKIPPED_FILE, (s._asdict() for s in listing.skipped))
    _write_lines(rejects_uri, DUPLICATES_FILE, map(asdict, duplicates))
    _write_lines(rejects_uri, NEAR_DUPLICATES_FILE, clusters)
    with open_file(os.path.join(rejects_uri, SUMMARY_FILE), "w") as file:
        file.write(json.dumps(summary, indent=1))


def summarize_clusters(clusters: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count the near duplicates: all but one of each cluster."""
    return {
        "near_duplicates": sum(len(cluster["paths"]) - 1 for cluster in clusters),
        "near_duplicates_of_several_labels": sum(len({*c["labels"]}) > 1 for c in clusters),
        "near_duplicates_in_several_splits": sum(
            len({*cluster["splits"]} - {None}) > 1 for cluster in clusters
        ),
    }


def _count(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(collections.Counter(values).items()))


def _write_lines(folder: str, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
    with open_file(os.path.join(folder, name), "w") as file:
        # One call creates the file even if there are no lines.
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def check_reports(
    reports: Sequence[PlanReport],
    duplicates: Sequence[Duplicate],
    listing: Listing,
    config: IngestConfig,
) -> None:
    """Raise unless every file is accounted for, few are rejected, and the splits are usable."""
    found = conflicts(duplicates)
    if found and config.conflicts == "fail":
        named = "; ".join(" = ".join(duplicate.paths[:_NAMED]) for duplicate in found[:_NAMED])
        raise DataError(
            f"{len(found)} images have more than one label, such as {named}: remove the wrong "
            f"ones, or set ingest.conflicts to keep or drop."
        )
    rejects = [reject for report in reports for reject in report.rejects]
    files, examples = len(listing.files), sum(report.examples for report in reports)
    if files != examples + len(rejects):
        raise RuntimeError(f"{files} files became {examples} examples and {len(rejects)} rejects")
    unusable = [r for r in rejects if r["category"] not in _USABLE]
    check_usable(sorted((r["path"], r["category"]) for r in unusable), listing, config)
    _check_labels(labels_per_split(reports), listing)


def _check_labels(found: Mapping[str, Mapping[str, int]], listing: Listing) -> None:
    """Raise `DataError` if the corrections leave one class, or a class without training images."""
    corrections, classes = listing.corrections.path, set().union(*found.values())
    if not corrections:
        require_splits(found, listing.root)
        return
    name = f"{listing.root} as corrected by {corrections}"
    if len(classes) < 2:
        raise DataError(
            f"{name} has images of {len(classes)} class{'' if classes else 'es'}: two are needed."
        )
    for label in sorted(listing.labels() - classes):
        logging.warning("Class %s of %s has no images.", quote(label), name)
    require_splits(found, name)


def check_usable(
    unusable: Sequence[tuple[str, str]], listing: Listing, config: IngestConfig
) -> None:
    """Raise `DataError` if too many files are not usable images.

    `unusable` has the path and category of each.
    """
    files = len(listing.files)
    if len(unusable) > config.max_reject_fraction * files:
        named = "; ".join(f"{path} ({category})" for path, category in unusable[:_NAMED])
        raise DataError(
            f"{len(unusable) if len(unusable) < files else 'All'} of {files} files in "
            f"{listing.root} are not usable images, such as {named}: repair or remove them, or "
            f"raise ingest.max_reject_fraction above {config.max_reject_fraction:g}."
        )


def labels_per_split(reports: Iterable[PlanReport]) -> dict[str, collections.Counter[str]]:
    """Count the examples: split → label → examples."""
    found: dict[str, collections.Counter[str]] = {}
    for report in reports:
        for split, labels in report.labels.items():
            found.setdefault(split, collections.Counter()).update(labels)
    return found


def records_per_shard(reports: Iterable[PlanReport]) -> dict[str, dict[str, int]]:
    """Count the records: split → shard file name → records."""
    splits: dict[str, dict[str, int]] = {}
    for report in reports:
        for split, path in report.shards("").items():
            records = sum(report.labels[split].values())
            splits.setdefault(split, {})[os.path.basename(path)] = records
    return splits
