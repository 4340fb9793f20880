"""The evaluated images, by their true class; matrix and tables link to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from components.report.facts import AnsweredImage, ReportFacts
from components.report.page.image_links import ImageLinks

# More classes make a list of several screens, and are opened on demand.
_MOST_OPEN = 60


def describe_images(facts: ReportFacts) -> dict[str, Any]:
    """Sort the images into their classes, and name what they can be chosen by."""
    numbers = ImageLinks.of(facts).numbers
    of_class: dict[str, list[AnsweredImage]] = {}
    for image in facts.images:
        of_class.setdefault(image.label, []).append(image)
    support = dict(zip(facts.metrics.labels, facts.metrics.support.tolist(), strict=True))
    return {
        "numbers": numbers,
        "most_open": _MOST_OPEN,
        "said": sorted({image.predicted for image in facts.images}),
        "groups": [
            {
                "label": label,
                "images": _sort_by_news(images),
                "total": max(len(images), support.get(label, 0)),
            }
            for label, images in sorted(of_class.items())
        ],
    }


def _sort_by_news(images: Iterable[AnsweredImage]) -> list[AnsweredImage]:
    """Begin with confident mistakes, go on with unsure ones, then with what is right but unsure."""

    def news(image: AnsweredImage) -> tuple[bool, float]:
        return image.is_right, image.confidence if image.is_right else -image.confidence

    return sorted(images, key=news)
