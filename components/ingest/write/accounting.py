"""Account for every file: write the lists of rejects, and check that all is well."""

import collections
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.contract.artifact_files import make_folders, open_file
from components.contract.errors import DataError
from components.contract.example import (
    CORRECTIONS_FILE,
    DUPLICATES_FILE,
    NEAR_DUPLICATES_FILE,
    REJECTS_FILE,
    SKIPPED_FILE,
    SUMMARY_FILE,
)
from components.contract.printable import quote
from components.images.check_result import Category
from components.ingest.config import IngestConfig
from components.ingest.plan.assignment import Report
from components.ingest.plan.decision import Decision
from components.ingest.plan.splits import check_classes, require_splits
from components.ingest.source.corrections import summarize
from components.ingest.source.listing import Listing, find_look_alikes

_NAMED = 3


def write_rejects(rejects_uri: str, report: Report, listing: Listing, decided: Decision) -> None:
    """Write the lists of rejected, skipped and duplicate files and corrections, and a summary."""
    duplicates, clusters = decided.duplicates, decided.near
    rejects = sorted(report.rejects, key=lambda reject: reject["path"])
    for reject in rejects:
        # TFX removes the outputs of a failed node; the log keeps the list.
        if reject["category"] != Category.REMOVED.value:
            logging.warning("Rejected %(path)s: %(category)s, %(reason)s", reject)
    conflicts = [duplicate for duplicate in duplicates if len(duplicate["labels"]) > 1]
    for conflict in conflicts:
        logging.warning("Labels %(labels)s for the same image: %(paths)s", conflict)
    summary: dict[str, Any] = {
        "files": len(listing.files) + len(listing.skipped),
        "examples": report.examples,
        "rejected": len(rejects),
        "skipped": len(listing.skipped),
        "rejected_by_category": _count(reject["category"] for reject in rejects),
        "skipped_by_reason": _count(listing.skipped.values()),
        "duplicates": sum(len(duplicate["paths"]) - 1 for duplicate in duplicates),
        "label_conflicts": len(conflicts),
        "in_several_splits": sum(len(duplicate["splits"]) > 1 for duplicate in duplicates),
        "near_duplicates": sum(len(cluster["paths"]) - 1 for cluster in clusters),
        "near_duplicates_of_several_labels": sum(len({*c["labels"]}) > 1 for c in clusters),
        "near_duplicates_in_several_splits": sum(len({*c["splits"]}) > 1 for c in clusters),
        "divided_classes": decided.divided,
        "undivided_classes": decided.undivided,
        "look_alikes": find_look_alikes(listing),
        "notes": dict(report.notes),
    }
    for note, count in summary["notes"].items():
        logging.warning("%s of %s images: %s.", f"{count:,}", f"{len(listing.files):,}", note)
    make_folders(rejects_uri)
    if listing.corrections.path:
        summary["corrections"] = summarize(listing.corrections, decided.outcomes)
        outcomes = (outcome.to_dict() for outcome in decided.outcomes)
        _write_lines(rejects_uri, CORRECTIONS_FILE, outcomes)
    _write_lines(rejects_uri, REJECTS_FILE, rejects)
    skipped = ({"path": path, "reason": reason} for path, reason in listing.skipped.items())
    _write_lines(rejects_uri, SKIPPED_FILE, skipped)
    _write_lines(rejects_uri, DUPLICATES_FILE, duplicates)
    _write_lines(rejects_uri, NEAR_DUPLICATES_FILE, clusters)
    with open_file(os.path.join(rejects_uri, SUMMARY_FILE), "w") as file:
        file.write(json.dumps(summary, indent=1))


def _count(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(collections.Counter(values).items()))


def _write_lines(folder: str, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
    with open_file(os.path.join(folder, name), "w") as file:
        # One call creates the file even if there are no lines.
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def check_report(report: Report, listing: Listing, config: IngestConfig) -> None:
    """Raise unless every file is accounted for, few are rejected, and the splits are usable."""
    rejects, files = report.rejects, len(listing.files)
    if files != report.examples + len(rejects):
        raise RuntimeError(
            f"{files} files became {report.examples} examples and {len(rejects)} rejects"
        )
    unusable = [r for r in rejects if r["category"] != Category.REMOVED.value]
    check_usable(sorted((r["path"], r["category"]) for r in unusable), listing, config)
    check_classes({r["path"]: r["category"] for r in rejects}, listing)
    _check_labels(report.labels, listing)


def _check_labels(counts: Mapping[str, Mapping[str, int]], listing: Listing) -> None:
    """Raise `DataError` if the corrections leave one class, or a class without training images."""
    corrections, classes = listing.corrections.path, set().union(*counts.values())
    if not corrections:
        require_splits(counts, listing.root)
        return
    name = f"{listing.root} as corrected by {corrections}"
    if len(classes) < 2:
        raise DataError(
            f"{name} has images of {len(classes)} class{'' if classes else 'es'}: two are needed."
        )
    for label in sorted(listing.labels() - classes):
        logging.warning("Class %s of %s has no images.", quote(label), name)
    require_splits(counts, name)


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
