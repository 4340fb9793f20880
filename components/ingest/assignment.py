"""What becomes of each image: the split and label of its record, or why it has none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from components.images.check_result import Category
from components.ingest.plan_facts import Fact
from components.ingest.source.listing import ImageFile
from components.ingest.stratification import SplitRule


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
    copies: Mapping[str, str] = field(default_factory=dict)
    """Path of an image to reject → path of its near duplicate."""

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
        if twin := self.copies.get(file.path):
            return Place(category=Category.NEAR_DUPLICATE.value, reason=f"a copy of {twin}")
        return Place(self.rule.split_of(file, sha256), self.label_of(file, sha256))
