"""Draws the pipeline as Kubeflow's interface does: `uv run python -m docs.draw_kubeflow`.

Reads a compiled specification, takes the boxes and lines that the interface takes of a layer
(frontend/src/lib/v2/StaticFlow.ts in kubeflow/pipelines), and has its library, dagre, lay them out.
Writes `docs/kubeflow.svg`. Needs Node.js and the npm registry.
"""

from __future__ import annotations

import html
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kfp_runner
from pipeline_def.kubeflow.check.spec_check import read_documents
from pipeline_def.kubeflow.specification import Specification

_DAGRE = "dagre@0.8.5"
_WIDTH, _HEIGHT, _MARGIN, _TITLE = 224, 48, 30, 46
_LAYERS = ("", "stage-data", "stage-evaluate")
_STYLE = {"sub-dag": "#e3ecf9", "step": "#ffffff", "artifact": "#fdf3dc"}
_CSS = "text{font:15px Helvetica,Arial,sans-serif;fill:#202124}.title{font-size:19px}"


@dataclass(frozen=True)
class Node:
    """A box: a sub-DAG, a step or an artifact."""

    label: str
    kind: str


def main() -> None:
    """Compile, lay out the root and the two stages of several steps, and draw them in a row."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        _run("npm", "install", "--silent", "--prefix", folder, _DAGRE)
        file = Path(folder) / "pipeline.yaml"
        images = ("--image", "images:1", "--data", "gs://bucket/images")
        kfp_runner.main(["compile", *images, "--output", str(file)])
        whole = Specification(*read_documents(str(file)))
        layers = {layer.sub_dag: layer for layer in whole.layers()}
        drawn = [_draw(layers[name], Path(folder), here) for name in _LAYERS]
    (here / "kubeflow.svg").write_text(_join(drawn), encoding="utf-8")


def _run(*command: str, **options: Any) -> str:
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options)
    return str(done.stdout)


def nodes_of(layer: Specification) -> dict[str, Node]:
    """Return every box of a layer by its key."""
    nodes = {}
    for name in layer.given("artifacts"):
        nodes[f"artifact..{name}"] = Node(name, "artifact")
    for task, definition in layer.tasks.items():
        kind = "sub-dag" if "dag" in layer.component(task) else "step"
        nodes[f"task.{task}"] = Node(definition["taskInfo"]["name"], kind)
        for name in layer.definitions(task, "outputDefinitions", "artifacts"):
            nodes[f"artifact.{task}.{name}"] = Node(name, "artifact")
    return nodes


def edges_of(layer: Specification) -> list[tuple[str, str]]:
    """Return every line of a layer, from box to box."""
    return sorted(set(_edges(layer)))


def _edges(layer: Specification) -> Iterator[tuple[str, str]]:
    for task, definition in layer.tasks.items():
        own = f"task.{task}"
        for name in layer.definitions(task, "outputDefinitions", "artifacts"):
            yield own, f"artifact.{task}.{name}"
        for source in layer.sources(task, "artifacts").values():
            if output := source.get("taskOutputArtifact"):
                yield f"artifact.{output['producerTask']}.{output['outputArtifactKey']}", own
            elif given := source.get("componentInputArtifact"):
                yield f"artifact..{given}", own
        for source in layer.sources(task, "parameters").values():
            if output := source.get("taskOutputParameter"):
                yield f"task.{output['producerTask']}", own
        for other in definition.get("dependentTasks", []):
            yield f"task.{other}", own


@dataclass(frozen=True)
class _Drawing:
    text: str
    width: float
    height: float


def _draw(layer: Specification, modules: Path, here: Path) -> _Drawing:
    """Draw one layer, its upper left corner at the origin."""
    nodes, edges = nodes_of(layer), edges_of(layer)
    given = json.dumps({"nodes": list(nodes), "edges": edges})
    program = modules / "layout.cjs"
    # Node.js looks for modules beside the program.
    program.write_text((here / "kubeflow_layout.cjs").read_text())
    places = json.loads(_run("node", str(program), input=given))
    title = f"root › {layer.sub_dag.removeprefix('stage-')}" if layer.sub_dag else "root"
    parts = [f'<text class="title" x="0" y="20">{html.escape(title)}</text>']
    parts += [_line(places[start], places[end]) for start, end in edges]
    parts += [_box(node, places[key]) for key, node in nodes.items()]
    width = max(place["x"] for place in places.values()) + _WIDTH / 2
    height = max(place["y"] for place in places.values()) + _HEIGHT / 2 + _TITLE
    return _Drawing("\n".join(parts), width, height)


def _line(start: dict[str, float], end: dict[str, float]) -> str:
    """Draw what React Flow draws: from the bottom of a box to the top of another."""
    x, y = start["x"], start["y"] + _HEIGHT / 2 + _TITLE
    u, v = end["x"], end["y"] - _HEIGHT / 2 + _TITLE
    middle = (y + v) / 2
    path = f"M{x:.0f},{y:.0f} C{x:.0f},{middle:.0f} {u:.0f},{middle:.0f} {u:.0f},{v:.0f}"
    return f'<path d="{path}" fill="none" stroke="#9aa0a6" marker-end="url(#arrow)"/>'


def _box(node: Node, place: dict[str, float]) -> str:
    x, y = place["x"] - _WIDTH / 2, place["y"] - _HEIGHT / 2 + _TITLE
    edge = "#1a73e8" if node.kind == "sub-dag" else "#bdc1c6"
    box = (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
        f'fill="{_STYLE[node.kind]}" stroke="{edge}"/>'
    )
    middle = f'x="{place["x"]:.0f}" y="{place["y"] + _TITLE + 5:.0f}" text-anchor="middle"'
    return f"{box}<text {middle}>{html.escape(node.label)}</text>"


def _join(drawings: list[_Drawing]) -> str:
    """Put the layers beside one another."""
    parts, left = [], float(_MARGIN)
    for drawing in drawings:
        parts.append(f'<g transform="translate({left:.0f},{_MARGIN})">\n{drawing.text}\n</g>')
        left += drawing.width + 3 * _MARGIN
    width = left - 2 * _MARGIN
    height = max(drawing.height for drawing in drawings) + 2 * _MARGIN
    arrow = (
        '<marker id="arrow" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="#9aa0a6"/></marker>'
    )
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{_CSS}</style>\n'
        f'<defs>{arrow}</defs>\n<rect width="100%" height="100%" fill="#f5f5f5"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
