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


INGEST = {"ImageExampleGen"}
STORES = {*NODES} - {"StatisticsGen", "SchemaGen", "Transform", "Trainer", "Evaluator"}


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("components/images/check.py", INGEST),
        ("components/images/canonical.py", {"Transform", "Trainer", "ImageReport"}),
        ("pipeline_def/model/networks.py", {"Trainer"}),
        ("components/evaluation/baseline.py", {"BaselineFinder"}),
        ("components/storage/object_store.py", STORES),
        ("components/evaluation/predictions.py", {"Evaluator", "ImageReport"}),
        ("components/report/page/templates/style.css", {"ImageReport"}),
        ("components/report/card/templates/card.md.j2", {"ImageReport"}),
        ("components/evaluation/metric_counts.py", {"Evaluator", "ImageReport"}),
        (
            "components/contract/example.py",
            {*NODES} - {"StatisticsGen", "BaselineFinder", "Pusher"},
        ),
        ("README.md", set()),
    ],
)
def test_a_change_of_code_makes_the_results_of_its_nodes_stale(
    copy_of_the_code: Path, file: str, stale: set[str]
) -> None:
    before = {node: code_digest.code_digest(node) for node in NODES}
    with (copy_of_the_code / file).open("a") as changed:
        changed.write("# another line\n")
    code_digest._imports.cache_clear()
    after = {node: code_digest.code_digest(node) for node in NODES}
    assert {node for node in NODES if after[node] != before[node]} == stale


@pytest.fixture
def copy_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = Path(code_digest.__file__).parent.parent
    before = {node: code_digest.code_digest(node) for node in NODES}
    for folder in ("components", "pipeline_def"):
        shutil.copytree(root / folder, tmp_path / folder)
    for file in ("uv.lock", "README.md"):
        shutil.copy(root / file, tmp_path)
    monkeypatch.setattr(code_digest, "_ROOT", tmp_path)
    assert {node: code_digest.code_digest(node) for node in NODES} == before
    return tmp_path
