"""What other people's pipelines import: `from components import …`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import components

ROOT = Path(__file__).parent.parent

_CHECK = """
import sys
import components
from components import IngestConfig, TrainerConfig, TransformConfig, to_json
heavy = {"tfx", "tensorflow", "apache_beam"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_importing_names_of_configuration_loads_no_tfx() -> None:
    subprocess.run([sys.executable, "-c", _CHECK], cwd=ROOT, check=True, timeout=60)


def test_type_checkers_see_the_names_that_are_looked_up() -> None:
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


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ImageTuner'"):
        _ = components.ImageTuner
