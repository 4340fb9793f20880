from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline_def import code_digest
from tests.nodes import NODES

TFX_NODES = ["StatisticsGen"]


def test_every_node_of_ours_has_a_digest_and_tfx_nodes_have_none() -> None:
    digests = {node: code_digest.code_digest(node) for node in NODES}
    assert [node for node, digest in digests.items() if not digest] == TFX_NODES
    assert len(set(digests.values())) == len(NODES) - len(TFX_NODES) + 1


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("components/image_check.py", {"ImageExampleGen"}),
        ("pipeline_def/image.py", {"Transform", "Trainer", "ImageReport"}),
        ("pipeline_def/model.py", {"Trainer"}),
        ("components/baseline.py", {"BaselineFinder"}),
        ("components/object_store.py", {"ImageExampleGen", "BaselineFinder", "Pusher"}),
        ("components/predictions.py", {"ImageReport"}),
        ("components/page/style.py", {"ImageReport"}),
        ("components/curves.py", {"Evaluator", "ImageReport"}),
        ("components/tally.py", {"Evaluator", "ImageReport"}),
        ("README.md", set()),
    ],
)
def test_a_change_of_code_makes_the_results_of_its_nodes_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, stale: set[str]
) -> None:
    before = {node: code_digest.code_digest(node) for node in NODES}
    root = Path(code_digest.__file__).parent.parent
    for folder in ("components", "pipeline_def"):
        shutil.copytree(root / folder, tmp_path / folder)
    monkeypatch.setattr(code_digest, "_ROOT", tmp_path)
    assert {node: code_digest.code_digest(node) for node in NODES} == before
    with (tmp_path / file).open("a") as changed:
        changed.write("# another line\n")
    after = {node: code_digest.code_digest(node) for node in NODES}
    assert {node for node in NODES if after[node] != before[node]} == stale
