"""The compiled pipeline, once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import kfp_runner
from pipeline_def.kubeflow.specification import Spec

MINIMAL = ("compile", "--image", "registry/image:1", "--data", "gs://bucket/images")


def compile_file(file: Path, *argv: str) -> list[Spec]:
    """Compile as the command line says; return the documents."""
    assert kfp_runner.main([*MINIMAL, "--output", str(file), *argv]) == 0
    return list(yaml.safe_load_all(file.read_text()))


@pytest.fixture(scope="session")
def compiled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the shortest command writes for open-source Kubeflow."""
    file = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
    compile_file(file)
    return file


@pytest.fixture(scope="session")
def compiled(compiled_file: Path) -> list[Spec]:
    """The documents of `compiled_file`."""
    return list(yaml.safe_load_all(compiled_file.read_text()))
