"""The names that other pipelines import: `from components import …`."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import components
from pipeline_def import steps

ROOT = Path(__file__).parent.parent

_CHECK = """
import sys
import components
from components import IngestConfig, TrainerConfig, TransformConfig, to_json
heavy = {"tfx", "tensorflow", "apache_beam"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_importing_configuration_does_not_load_tfx() -> None:
    subprocess.run([sys.executable, "-c", _CHECK], cwd=ROOT, check=True, timeout=60)


def test_type_checkers_see_the_lazy_names() -> None:
    tree = ast.parse(Path(components.__file__).read_text())
    seen = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == components._PLACES
    assert dir(components) == sorted(components.__all__) == sorted(seen)


def test_a_component_without_a_step_fails_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        components.COMPONENTS, "ImageBulkInferrer", "components.inference.component"
    )
    with pytest.raises(ImportError, match="disagree about ImageBulkInferrer"):
        runpy.run_path(steps.__file__)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ImageBulkInferrer'"):
        _ = components.ImageBulkInferrer
