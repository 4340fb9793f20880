"""Fixtures of the tests of exports."""

import subprocess
from typing import Any

import pytest

from components.trainer.export import conversion_process


@pytest.fixture
def converting_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert in this process: another one has to import TensorFlow first."""

    def run(command: list[str], **_: Any) -> Any:
        conversion_process.convert(*command[2:])
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr("components.trainer.export.formats.subprocess.run", run)
