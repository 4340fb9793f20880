"""The names that other pipelines import: `from components import …`."""

import ast
import subprocess
import sys
from pathlib import Path

import components
from pipeline_def.steps import STEPS
from tests.repository import ROOT

_CHECK = """
import sys
import components
from components import IngestConfig, TrainerConfig, TransformConfig, to_json
heavy = {"tfx", "tensorflow", "apache_beam"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_importing_configuration_does_not_load_tfx() -> None:
    subprocess.run([sys.executable, "-c", _CHECK], cwd=ROOT, check=True, timeout=60)


def test_every_component_is_a_step_and_seen_by_type_checkers() -> None:
    tree = ast.parse(Path(components.__file__).read_text())
    seen = {
        alias.asname: (node.module or "").removeprefix("components")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == components._PLACES
    assert dir(components) == sorted(components.__all__) == sorted(seen)
    assert sorted(row.component for row in STEPS.values()) == sorted(components.COMPONENTS)
    assert not hasattr(components, "ImageBulkInferrer")
