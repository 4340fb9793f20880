"""The map of images that the model finds similar."""

from typing import Any

import numpy as np
from markupsafe import Markup

from components.report.facts import ReportFacts
from components.report.page.formatting import shorten

_WIDTH, _HEIGHT, _MARGIN = 1000, 640, 14
_LONGEST = 80

# More hues cannot be told apart.
_COLORED = 12
_SMALLEST, _LARGEST, _COVERED = 5, 16, 300


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
