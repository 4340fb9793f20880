"""Suspects, which a person should look at, and the map of images that the model finds similar."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from components.contract.suspects import REASONS
from components.report.facts import ReportFacts
from components.report.page.formatting import shorten
from components.report.shown import ShownSuspect

_TITLES = {"label": "Labels that may be wrong", "near_duplicate": "Near duplicates"}
_ODD = "Odd images"

_WIDTH, _HEIGHT, _MARGIN = 1000, 640, 14
_LONGEST = 80

# More hues cannot be told apart.
_COLORED = 12
_SMALLEST, _LARGEST, _COVERED = 5, 16, 300


class SuspectGroup(NamedTuple):
    """Suspects of a kind."""

    title: str
    shown: list[ShownSuspect]
    found: int


def describe_suspects(facts: ReportFacts) -> dict[str, Any]:
    """Group the suspects: labels, near duplicates, and odd images."""
    suspects = facts.suspects
    if suspects is None:
        return {"groups": (), "reasons": REASONS}
    groups: dict[str, list[ShownSuspect]] = {title: [] for title in (*_TITLES.values(), _ODD)}
    counts = dict.fromkeys(groups, 0)
    for shown in suspects.shown:
        groups[_TITLES.get(shown.suspect.reason, _ODD)].append(shown)
    for reason, count in suspects.found.items():
        counts[_TITLES.get(reason, _ODD)] += count
    return {
        "groups": [
            SuspectGroup(title, shown, max(counts[title], len(shown)))
            for title, shown in groups.items()
            if shown
        ],
        "reasons": REASONS,
    }


class MapClass(NamedTuple):
    """The points of a class."""

    label: str
    hue: int | None
    """Degrees; None for classes without a color of their own."""
    path: str
    """SVG path of the points."""
    names: Markup
    """Names of the images in the same order, one a line."""


def describe_map(facts: ReportFacts) -> dict[str, Any]:
    """Write the points of each class, the most frequent class first."""
    image_map = facts.suspects.image_map if facts.suspects else None
    if image_map is None:
        return {"classes": (), "points": 0}
    rows = range(len(image_map.paths))
    x, y = (_MARGIN + image_map.places * (np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN)).round().T
    points = [f"M{column:.0f} {row:.0f}h0" for column, row in zip(x, y, strict=True)]
    counts = Counter(image_map.labels[row] for row in rows)
    order = sorted(counts, key=lambda label: (-counts[label], label))
    of_class: dict[str, list[int]] = {label: [] for label in order}
    for row in rows:
        of_class[image_map.labels[row]].append(row)
    return {
        "classes": [
            MapClass(
                label,
                360 * place // min(_COLORED, len(order)) if place < _COLORED else None,
                "".join(points[row] for row in members),
                Markup("&#10;").join(shorten(image_map.paths[row], _LONGEST) for row in members),
            )
            for place, (label, members) in enumerate(of_class.items())
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
