"""What lies behind the border of each stage, where TFX is not installed: `.ci/without_tfx`."""

import fnmatch
import importlib
import importlib.util
import tomllib

import pytest

from tests.repository import ROOT

FAMILY = {
    "keras_tuner",
    "ml_metadata",
    "tensorflow_data_validation",
    "tensorflow_model_analysis",
    "tensorflow_transform",
    "tfx",
    "tfx_bsl",
}
# A command calls it, which begins with what the border gives it.
ABOVE = ("pipeline_def.local.execution",)


def border() -> list[str]:
    """Patterns of modules that import-linter lets import something of TFX."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    edges = [
        edge.split(" -> ")[0]
        for contract in linter["contracts"]
        if FAMILY & set(contract.get("forbidden_modules", ()))
        for edge in contract.get("ignore_imports", ())
    ]
    return [*edges, *ABOVE]


def modules() -> list[str]:
    """All modules of ours."""
    files = (
        file for name in ("components", "pipeline_def") for file in (ROOT / name).rglob("*.py")
    )
    paths = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    return sorted(".".join(parts) for parts in paths if parts[-1] != "__init__")


@pytest.mark.skipif(importlib.util.find_spec("tfx") is not None, reason="TFX is installed")
def test_every_module_behind_the_border_can_be_imported() -> None:
    patterns, broken = border(), {}
    for module in modules():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            at_border = any(fnmatch.fnmatch(module, pattern) for pattern in patterns)
            if not at_border or str(error.name).partition(".")[0] not in FAMILY:
                broken[module] = str(error)
    assert broken == {}
