"""Suspects, which a person should look at, and the map of images that the model finds similar."""

from typing import Any

import numpy as np
from markupsafe import Markup

from components.contract.suspects import REASONS
from components.report.facts import ReportFacts
from components.report.page.formatting import shorten

_TITLES = {
    "label": "Labels that may be wrong",
    "near_duplicate": "Copies with other labels or in other splits",
}
_ODD = "Odd images"

_WIDTH, _HEIGHT, _MARGIN = 1000, 640, 14
_LONGEST = 80

# More hues cannot be told apart.
_COLORED = 12
_SMALLEST, _LARGEST, _COVERED = 5, 16, 300


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
        count = sum(n for reason, n in suspects.found.items() if _TITLES.get(reason, _ODD) == title)
        if shown:
            count = max(count, len(shown))
            groups.append({"title": title, "shown": shown, "found": count})
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
