"""Draws the pipeline as Kubeflow's interface does: `uv run python -m docs.draw_kubeflow`.

Reads a compiled specification, takes the boxes and lines that the interface takes of a layer
(frontend/src/lib/v2/StaticFlow.ts in kubeflow/pipelines), and has its library, dagre, lay them out.
Writes `docs/kubeflow.svg`. Needs Node.js and the npm registry.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kfp_runner
from docs.diagram import Box, draw_arrow, draw_page, draw_title
from pipeline_def.kubeflow.spec_check import read_documents
from pipeline_def.kubeflow.specification import Specification

_DAGRE = "dagre@0.8.5"
_WIDTH, _HEIGHT, _MARGIN, _TITLE = 224, 48, 30, 46
_LAYERS = ("", "stage-data", "stage-evaluate")
_STYLE = {"sub-dag": "#e3ecf9", "step": "#ffffff", "artifact": "#fdf3dc"}


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
        kfp_runner.main(["compile", *images, "--kubeflow.graph", "nested", "--output", str(file)])
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
    for name in layer.layer.get("inputDefinitions", {}).get("artifacts", {}):
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
    boxes = {key: _box(node, places[key]) for key, node in nodes.items()}
    parts = [draw_title(title)]
    parts += [draw_arrow(boxes[start].bottom, boxes[end].top) for start, end in edges]
    parts += [box.draw() for box in boxes.values()]
    width = max(place["x"] for place in places.values()) + _WIDTH / 2
    height = max(place["y"] for place in places.values()) + _HEIGHT / 2 + _TITLE
    return _Drawing("\n".join(parts), width, height)


def _box(node: Node, place: dict[str, float]) -> Box:
    edge = "#1a73e8" if node.kind == "sub-dag" else "#bdc1c6"
    x, y = place["x"], place["y"] + _TITLE
    return Box(node.label, x, y, _WIDTH, _HEIGHT, fill=_STYLE[node.kind], edge=edge)


def _join(drawings: list[_Drawing]) -> str:
    """Put the layers beside one another."""
    parts, left = [], float(_MARGIN)
    for drawing in drawings:
        parts.append(f'<g transform="translate({left:.0f},{_MARGIN})">\n{drawing.text}\n</g>')
        left += drawing.width + 3 * _MARGIN
    width = left - 2 * _MARGIN
    height = max(drawing.height for drawing in drawings) + 2 * _MARGIN
    return draw_page(parts, width, height, background="#f5f5f5")


if __name__ == "__main__":
    main()
