"""Images with their predictions, suspects, which a person should look at, and the map of images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from markupsafe import Markup

from components.contract.image_tables import REASONS
from components.report.facts import ReportFacts
from components.report.page.formatting import shorten
from components.report.shown import PredictedImage

# More classes are collapsed.
_MOST_OPEN = 60

_TITLES = {
    "label": "Labels that may be wrong",
    "near_duplicate": "Copies with other labels or in other splits",
}
_ODD = "Odd images"

# Of the map.
_WIDTH, _HEIGHT, _MARGIN = 1000, 640, 14
_LONGEST = 80

# More hues cannot be told apart.
_COLORED = 12
_SMALLEST, _LARGEST, _COVERED = 5, 16, 300


@dataclass(frozen=True)
class ImageLinks:
    """Numbers of the classes, and the pairs of true and predicted class that have images."""

    numbers: Mapping[str | None, int]
    pairs: frozenset[tuple[str | None, str | None]]
    """None: any class."""

    @classmethod
    def of(cls, facts: ReportFacts) -> Self:
        """Number the classes of all images by name."""
        shown = {(image.label, image.predicted) for image in facts.images}
        labels = sorted({label for pair in shown for label in pair})
        any_class = ({(label, None), (None, predicted)} for label, predicted in shown)
        numbers: dict[str | None, int] = {label: place for place, label in enumerate(labels)}
        return cls(numbers, frozenset(shown).union(*any_class))

    def find(
        self, label: str | None = None, predicted: str | None = None
    ) -> tuple[int | None, int | None] | None:
        """Return the numbers for a link to the images of a pair; None if there are none."""
        if (label, predicted) not in self.pairs:
            return None
        return self.numbers.get(label), self.numbers.get(predicted)


def describe_images(facts: ReportFacts) -> dict[str, Any]:
    """Group the images by their true class, and list the choices of the filter."""
    of_class: dict[str, list[PredictedImage]] = {}
    for image in facts.images:
        of_class.setdefault(image.label, []).append(image)
    support = dict(zip(facts.metrics.labels, facts.metrics.support.tolist(), strict=True))
    return {
        "numbers": ImageLinks.of(facts).numbers,
        "most_open": _MOST_OPEN,
        "predicted": sorted({image.predicted for image in facts.images}),
        "groups": [
            {
                "label": label,
                "images": sorted(images, key=_informs),
                "total": max(len(images), support.get(label, 0)),
            }
            for label, images in sorted(of_class.items())
        ],
    }


def _informs(image: PredictedImage) -> tuple[bool, float]:
    """Rank confident mistakes first, then unsure ones, then unsure and sure right predictions."""
    return image.is_right, image.confidence if image.is_right else -image.confidence


def describe_suspects(facts: ReportFacts) -> dict[str, Any]:
    """Group the suspects: labels, copies, and odd images."""
    suspects = facts.suspects
    if suspects is None:
        return {"groups": (), "reasons": REASONS}
    groups = []
    for title in (*_TITLES.values(), _ODD):
        shown = [
            suspect for suspect in suspects.shown if _TITLES.get(suspect.reason, _ODD) == title
        ]
        counts = suspects.counts.items()
        count = sum(n for reason, n in counts if _TITLES.get(reason, _ODD) == title)
        if shown:
            groups.append({"title": title, "shown": shown, "count": count})
    return {"groups": groups, "reasons": REASONS}


def describe_map(facts: ReportFacts) -> dict[str, Any]:
    """Write the points of each class, the most frequent class first."""
    image_map = facts.suspects.image_map if facts.suspects else None
    if image_map is None:
        return {"classes": (), "points": 0}
    rows = range(len(image_map.paths))
    x, y = (_MARGIN + image_map.places * (np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN)).round().T
    points = [f"M{column:.0f} {row:.0f}h0" for column, row in zip(x, y, strict=True)]
    of_class: dict[str, list[int]] = {}
    for row in rows:
        of_class.setdefault(image_map.labels[row], []).append(row)
    order = sorted(of_class.items(), key=lambda item: (-len(item[1]), item[0]))
    return {
        "classes": [
            {
                "label": label,
                "hue": 360 * place // min(_COLORED, len(order)) if place < _COLORED else None,
                "path": "".join(points[row] for row in members),
                "names": Markup("&#10;").join(
                    shorten(image_map.paths[row], _LONGEST) for row in members
                ),
            }
            for place, (label, members) in enumerate(order)
        ],
        "rings": [
            (int(x[row]), int(y[row])) for row in rows if image_map.paths[row] in image_map.suspects
        ],
        "points": len(rows),
        "others": max(0, len(order) - _COLORED),
        "size": int(np.clip(_COVERED / np.sqrt(len(rows)), _SMALLEST, _LARGEST)),
        "width": _WIDTH,
        "height": _HEIGHT,
    }
