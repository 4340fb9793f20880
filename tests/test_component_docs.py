"""The names that other pipelines import, their docstrings and docs/reference/components.md."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tfx import types
from tfx.proto.pusher_pb2 import PushDestination

import components
from components import TrainerConfig, TrainingConfig, TransformConfig
from pipeline_def.steps import STEPS
from tests.repository import ROOT

# With other tests that import TFX.
pytestmark = pytest.mark.xdist_group("kubeflow")

DOCS = ROOT / "docs" / "reference" / "components.md"
COMPONENTS = [
    name for name in components.__all__ if hasattr(getattr(components, name), "SPEC_CLASS")
]
REQUIRED = {
    "ImageExampleGen": {"folder": "photos"},
    "ImagePredictor": {"folder": "photos"},
    "ImagePusher": {
        "push_destination": PushDestination(
            filesystem=PushDestination.Filesystem(base_directory="pushed")
        )
    },
    # It asks the producer of its input otherwise.
    "ImageTrainer": {"config": TrainerConfig(transform=TransformConfig(size=32))},
    "ImageTuner": {
        "config": TrainerConfig(
            transform=TransformConfig(size=32), training=TrainingConfig(minutes=1)
        )
    },
}
_CHECK = """
import sys
import components
from components import IngestConfig, TrainerConfig, TransformConfig, to_json
heavy = {"tfx", "tensorflow", "apache_beam"} & sys.modules.keys()
assert not heavy, heavy
"""
# Resolved by the driver, not given.
INTERNAL = {"baseline_digest", "found_baseline", "found_files", "training_key"}


@pytest.mark.parametrize("name", COMPONENTS)
def test_docstring_examples_run(name: str) -> None:
    text = inspect.cleandoc(getattr(components, name).__doc__)
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert result.attempted >= 3
    assert result.failed == 0, "".join(said)


def arguments(component: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of the constructor, or of a component's function."""
    made_of_function = hasattr(component, "test_call")
    function = component.test_call if made_of_function else component.__init__
    given = dict(inspect.signature(function).parameters)
    outputs = component.SPEC_CLASS.OUTPUTS
    return {
        name: parameter
        for name, parameter in given.items()
        if name not in {"self", *outputs, *INTERNAL}
    }


def facts_of(name: str) -> dict[str, str]:
    """Inputs (←) and outputs (→) with their classes, properties (=) with their defaults."""
    component = getattr(components, name)
    known, taken = component.SPEC_CLASS.INPUTS, arguments(component)
    if taken.pop("inputs", None):  # All of them, by their names.
        optional = {n: channel.optional for n, channel in known.items()}
    else:
        optional = {n: parameter.default is None for n, parameter in taken.items() if n in known}
    channels = {n: types.Channel(type=known[n].type) for n in optional}
    instance = component(**channels, **REQUIRED.get(name, {}))
    classes = {n: known[n].type.__name__ for n in optional}
    return {
        **{f"{n} ←": f"`{classes[n]}`{', optional' * may}" for n, may in optional.items()},
        **{f"{n} →": f"`{channel.type.__name__}`" for n, channel in instance.outputs.items()},
        **{f"{n} =": default(parameter) for n, parameter in taken.items() if n not in known},
    }


def default(argument: inspect.Parameter) -> str:
    if argument.default is inspect.Parameter.empty:
        return "required"
    if argument.default is None:
        kind = str(argument.annotation).partition(" ")[0].rpartition(".")[2]
        return f"`{kind}()`" if kind.endswith("Config") else "none"
    return f"`{argument.default!r}`"


@pytest.mark.parametrize("name", COMPONENTS)
def test_docs_name_inputs_outputs_and_properties(name: str) -> None:
    parts = re.split(r"^## (.+)$", DOCS.read_text(), flags=re.M)
    text = re.sub(r"\n  +", " ", parts[parts.index(name) + 1])
    rows = re.findall(r"^- `(\w+)` ([←→=]) (.+?): (.+)$", text, flags=re.M)
    assert facts_of(name) == {
        f"{item} {sign}": value + ", optional" * (sign == "←" and "optional" in meaning)
        for item, sign, value, meaning in rows
    }


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
