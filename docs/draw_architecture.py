"""Draws the imports between packages: `uv run python -m docs.draw_architecture`.

Reads the imports and writes `docs/architecture.svg`, without the arrows that others imply.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

import grimp

from docs.diagram import Box, draw_arrow, draw_page

_ROOTS = ("components", "pipeline_def")
_WIDTH, _HEIGHT = 126, 52
# Pixels between the centers of boxes, horizontally and vertically, and the margin.
_ACROSS, _UP, _AROUND = 156, 118, 20
_COLORS = {"components": "#dceedd", "pipeline_def": "#dde7f5"}

Edges = Mapping[str, frozenset[str]]


def main() -> None:
    """Draw the packages; those without imports are at the bottom."""
    graph = grimp.build_graph(*_ROOTS, exclude_type_checking_imports=True)
    edges = _reduce(_between_packages(graph))
    target = Path(__file__).with_name("architecture.svg")
    target.write_text(_draw(edges), encoding="utf-8")
    print(target)


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _between_packages(graph: grimp.ImportGraph) -> Edges:
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        if module.count(".") == 0 or graph.find_children(module):
            continue
        package = _package(module)
        imported = {_package(name) for name in graph.find_modules_directly_imported_by(module)}
        found.setdefault(package, set()).update(imported - {package, *_ROOTS})
    return {name: frozenset(others & found.keys()) for name, others in found.items()}


def _reduce(edges: Edges) -> Edges:
    """Drop the imports that others imply."""

    @functools.cache
    def reach(package: str) -> frozenset[str]:
        below = (reach(name) | {name} for name in edges[package])
        return frozenset().union(*below)

    return {
        package: frozenset(
            name for name in direct if not any(name in reach(other) for other in direct - {name})
        )
        for package, direct in edges.items()
    }


def _levels(edges: Edges) -> dict[str, int]:
    @functools.cache
    def level(package: str) -> int:
        return max((level(name) + 1 for name in edges[package]), default=0)

    return {package: level(package) for package in sorted(edges)}


def _draw(edges: Edges) -> str:
    rows: dict[int, list[str]] = {}
    for package, level in _levels(edges).items():
        rows.setdefault(level, []).append(package)
    _untangle(rows, edges)
    width = max(map(len, rows.values())) * _ACROSS + _AROUND
    height = len(rows) * _UP + _AROUND
    boxes = {
        package: _box(
            package,
            width / 2 + (place - (len(row) - 1) / 2) * _ACROSS,
            height - _AROUND / 2 - (level + 0.5) * _UP,
        )
        for level, row in rows.items()
        for place, package in enumerate(row)
    }
    arrows = [
        draw_arrow(boxes[package].bottom, boxes[other].top)
        for package, others in edges.items()
        for other in sorted(others)
    ]
    parts = [*arrows, *(box.draw() for box in boxes.values())]
    return draw_page(parts, width, height, background="#ffffff")


def _box(package: str, x: float, y: float) -> Box:
    root, _, name = package.partition(".")
    return Box(f"{root}.\n{name}", x, y, _WIDTH, _HEIGHT, fill=_COLORS[root])


def _untangle(rows: dict[int, list[str]], edges: Edges) -> None:
    """Order each row, from the bottom up, by where the imported packages lie."""
    places: dict[str, float] = {}
    for level in sorted(rows):
        rows[level].sort(key=lambda name: (_mean([places[other] for other in edges[name]]), name))
        middle = (len(rows[level]) - 1) / 2
        places.update({name: place - middle for place, name in enumerate(rows[level])})


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


if __name__ == "__main__":
    main()
