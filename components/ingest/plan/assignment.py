"""What becomes of each image: the split and label of its record, or why it has none."""

import collections
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from components.images.check_result import Category
from components.ingest.plan.facts import Digests, Fact, PlanFacts, find_repeated
from components.ingest.plan.shard_plan import ShardPlan
from components.ingest.plan.splits import SplitRule
from components.ingest.source.corrections import Match
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
    dropped: frozenset[str] = frozenset()
    """Digests of images to reject because they have several labels."""

    def label_of(self, file: ImageFile, sha256: str) -> str:
        """Return the label of a file, corrected if it must be."""
        return self.corrected.get(sha256) or file.label

    def place(self, file: ImageFile, fact: Fact) -> Place:
        """Return the place of a file's record."""
        sha256 = fact.sha256
        if not sha256:
            return Place(category=fact.category, reason=fact.reason)
        if sha256 in self.dropped:
            reason = "the same image also has another label"
            return Place(category=Category.LABEL_CONFLICT.value, reason=reason)
        if self.corrected.get(sha256, "") is None:
            reason = "the corrections file says so"
            return Place(category=Category.REMOVED.value, reason=reason)
        if fact.category:
            return Place(category=fact.category, reason=fact.reason)
        return Place(self.rule.split_of(file, sha256), self.label_of(file, sha256))


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
    for file, fact in facts.files():
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


def each_image(reports: Iterable[PlanReport]) -> Iterator[tuple[ImageFile, str]]:
    """Yield each file that is not rejected, with its digest."""
    for report in reports:
        for file, sha256 in zip(report.plan.files, report.digests, strict=True):
            if sha256:
                yield file, sha256


def find_copies(reports: Sequence[PlanReport]) -> dict[str, list[ImageFile]]:
    """Return digest → files of each image that several files contain."""
    repeated = find_repeated(report.digests for report in reports)
    files: dict[str, list[ImageFile]] = {}
    for file, sha256 in each_image(reports) if repeated else ():
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
        for split, path in report.plan.shards("", report.labels).items():
            records = sum(report.labels[split].values())
            splits.setdefault(split, {})[os.path.basename(path)] = records
    return splits
