"""Where the images of a class, or of a pair of classes, are on the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from components.report.facts import ReportFacts

SECTION = "images"
"""The section that has them."""


class ImageLink(NamedTuple):
    """What a link to images needs to know."""

    target: str
    """Identifier of the element that has them, and maybe more."""
    label: int | None
    """Number of their true class; None: any."""
    predicted: int | None
    """Number of what the model says."""


@dataclass(frozen=True)
class ImageLinks:
    """Numbers of the classes, and which pairs of true and predicted class have images."""

    numbers: Mapping[str, int]
    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, facts: ReportFacts) -> ImageLinks:
        """Number the classes of all images, in the order of their names."""
        pairs = frozenset((image.label, image.predicted) for image in facts.images)
        labels = sorted({label for pair in pairs for label in pair})
        return cls({label: number for number, label in enumerate(labels)}, pairs)

    def find(self, label: str | None = None, predicted: str | None = None) -> ImageLink | None:
        """Return the link to the images of a class, or a pair; None where there are none."""
        if label is not None and predicted is not None:
            found = (label, predicted) in self.pairs
        else:
            found = any(label in (None, of) and predicted in (None, to) for of, to in self.pairs)
        if not found:
            return None
        number = None if label is None else self.numbers[label]
        target = SECTION if number is None else f"{SECTION}-{number}"
        return ImageLink(target, number, None if predicted is None else self.numbers[predicted])
