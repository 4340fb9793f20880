"""Draws which package imports which: `uv run python -m docs.draw_architecture`.

Reads the imports, not a description of them, and writes `docs/architecture.svg`. An import that
follows from two others is left out. Prints how many levels of modules import one another.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import grimp
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

_ROOTS = ("components", "pipeline_def")
_WIDTH, _HEIGHT = 1.0, 0.42
_COLOURS = {"components": "#dceedd", "pipeline_def": "#dde7f5"}

Edges = Mapping[str, frozenset[str]]


def main() -> None:
    """Draw the packages, the ones that import nothing at the bottom."""
    graph = grimp.build_graph(*_ROOTS, exclude_type_checking_imports=True)
    edges = _reduce(_between_packages(graph))
    target = Path(__file__).with_name("architecture.svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "architecture"})
    _draw(edges).savefig(target, metadata={"Date": None})
    print(f"{len(edges)} packages; modules import one another {_depth(graph)} levels deep")


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
    """Leave out what another import implies."""

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


def _depth(graph: grimp.ImportGraph) -> int:
    modules = {m for m in graph.modules if m.count(".") and not graph.find_children(m)}
    edges = {m: frozenset(graph.find_modules_directly_imported_by(m) & modules) for m in modules}
    return 1 + max(_levels(edges).values())


def _draw(edges: Edges) -> Figure:
    levels = _levels(edges)
    rows: dict[int, list[str]] = {}
    for package, level in levels.items():
        rows.setdefault(level, []).append(package)
    _untangle(rows, edges)
    widest = max(map(len, rows.values()))
    figure = Figure(figsize=(1.55 * widest, 0.95 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    places = {
        package: ((place - (len(row) - 1) / 2) * 1.3, float(level))
        for level, row in rows.items()
        for place, package in enumerate(row)
    }
    for package, others in edges.items():
        for other in sorted(others):
            _arrow(axes, places[package], places[other])
    for package, (x, y) in places.items():
        colour = _COLOURS[package.split(".")[0]]
        corner = (x - _WIDTH / 2, y - _HEIGHT / 2)
        box = FancyBboxPatch(
            corner, _WIDTH, _HEIGHT, boxstyle="round,pad=0.04", facecolor=colour, linewidth=0.8
        )
        axes.add_patch(box)
        axes.text(x, y, package.replace(".", ".\n", 1), ha="center", va="center", fontsize=8)
    axes.autoscale_view()
    return figure


def _untangle(rows: dict[int, list[str]], edges: Edges) -> None:
    """Order each row, from the bottom up, by where the imported packages lie."""
    places: dict[str, float] = {}
    for level in sorted(rows):
        rows[level].sort(key=lambda name: (_mean([places[other] for other in edges[name]]), name))
        middle = (len(rows[level]) - 1) / 2
        places.update({name: place - middle for place, name in enumerate(rows[level])})


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    above, below = (start[0], start[1] - _HEIGHT / 2), (end[0], end[1] + _HEIGHT / 2 + 0.05)
    axes.annotate(
        "", below, above, arrowprops={"arrowstyle": "->", "color": "#8899aa", "lw": 0.8}, zorder=0
    )


if __name__ == "__main__":
    main()
