"""What becomes of each image: the split and label of its record, or why it has none."""

import collections
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from components.images.check_result import Category
from components.ingest.plan.facts import Fact, PlanFacts
from components.ingest.plan.splits import SplitRule
from components.ingest.source.listing import ImageFile


class Place(NamedTuple):
    """Where the record of a file belongs; without a split, the file is rejected."""

    split: str = ""
    label: str = ""
    category: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Assignment:
    """Decides from the images themselves, and from what is known once all have been read."""

    rule: SplitRule
    corrected: Mapping[str, str | None] = field(default_factory=dict)
    """Digest of an image → its new label, or None to remove it."""

    def label_of(self, file: ImageFile, sha256: str) -> str:
        """Return the label of a file, corrected if it must be."""
        return self.corrected.get(sha256) or file.label

    def place(self, file: ImageFile, fact: Fact) -> Place:
        """Return the place of a file's record."""
        sha256 = fact.sha256
        if self.corrected.get(sha256, "") is None:
            reason = "the corrections file says so"
            return Place(category=Category.REMOVED.value, reason=reason)
        if fact.category:
            return Place(category=fact.category, reason=fact.reason)
        return Place(self.rule.split_of(file, sha256), self.label_of(file, sha256))


@dataclass(frozen=True)
class Images:
    """All files that are not rejected, each with its digest."""

    facts: Sequence[PlanFacts]
    corrected: Mapping[str, str | None]
    """As in `Assignment`."""

    def __iter__(self) -> Iterator[tuple[ImageFile, str]]:
        known = (pair for plan in self.facts for pair in plan.files())
        return ((file, fact.sha256) for file, fact in known if self.has(fact))

    def has(self, fact: Fact) -> bool:
        """Return whether a file is not rejected."""
        return not fact.category and self.corrected.get(fact.sha256, "") is not None


@dataclass(frozen=True)
class Report:
    """What becomes of all files."""

    labels: Mapping[str, collections.Counter[str]]
    """Split → label → examples."""
    shards: Mapping[str, Mapping[str, int]]
    """Split → file name of a shard → records."""
    rejects: Sequence[dict[str, str]]
    """Path, category and reason."""
    notes: Mapping[str, int]
    """How images differ from their files → number of images."""
    misplaced: Sequence[int]
    """Numbers of plans with an image that is in the wrong shard, or has the wrong label."""

    @property
    def examples(self) -> int:
        """Number of examples in all splits."""
        return sum(labels.total() for labels in self.labels.values())


def report_on(plans: Sequence[PlanFacts], assignment: Assignment) -> Report:
    """Return what becomes of the files of all plans."""
    labels = collections.defaultdict[str, collections.Counter[str]](collections.Counter)
    shards = collections.defaultdict[str, dict[str, int]](dict)
    rejects: list[dict[str, str]] = []
    notes, misplaced = collections.Counter[str](), []
    for number, plan in enumerate(plans):
        records, is_arranged = collections.Counter[str](), True
        for file, fact in plan.files():
            split, label, category, reason = assignment.place(file, fact)
            is_arranged = is_arranged and (split, label) == (fact.split, fact.label)
            if split:
                labels[split][label] += 1
                records[split] += 1
                notes.update(fact.notes)
            else:
                rejects.append({"path": file.path, "category": category, "reason": reason})
        for split, path in plan.plan.shards("", records).items():
            shards[split][os.path.basename(path)] = records[split]
        if not is_arranged:
            misplaced.append(number)
    return Report(dict(labels), dict(shards), rejects, notes, misplaced)


def list_units(images: Images, rule: SplitRule) -> dict[str, str]:
    """Return digest → key of its unit, of each image that a rule keeps together with others."""
    units = ((sha256, rule.unit_of(file, sha256)) for file, sha256 in images)
    return {sha256: unit for sha256, unit in units if unit != sha256}


def find_copies(images: Images) -> dict[str, list[ImageFile]]:
    """Return digest → files of each image that several files contain."""
    starts = np.sort(np.fromiter((int(sha256[:16], 16) for _, sha256 in images), np.uint64))
    repeated = set(starts[1:][starts[1:] == starts[:-1]].tolist())
    files: dict[str, list[ImageFile]] = {}
    for file, sha256 in images if repeated else ():
        if int(sha256[:16], 16) in repeated:
            files.setdefault(sha256, []).append(file)
    return {sha256: copies for sha256, copies in files.items() if len(copies) > 1}


def list_duplicates(
    copies: Mapping[str, Sequence[ImageFile]], assignment: Assignment
) -> list[dict[str, Any]]:
    """Return the lines of the list of duplicates, for the images that `find_copies` has found.

    Labels and splits are distinct: several labels are a conflict, and with several splits, the
    model is tested on training images.
    """
    lines = []
    for sha256, files in copies.items():
        line = {
            "sha256": sha256,
            "paths": sorted(file.path for file in files),
            "labels": sorted({assignment.label_of(file, sha256) for file in files}),
            "splits": sorted({assignment.rule.split_of(file, sha256) for file in files}),
        }
        lines.append(line)
    return sorted(lines, key=lambda line: line["paths"])
