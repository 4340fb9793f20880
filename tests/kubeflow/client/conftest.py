"""A stub of the API server, and the commands that use it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kfp_runner
from tests.kubeflow.client.kfp_server import KfpServer

Say = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KFP_TOKEN", raising=False)


@pytest.fixture
def server() -> Iterator[KfpServer]:
    """A server of its own for each test."""
    with KfpServer() as running:
        yield running


@pytest.fixture
def say(server: KfpServer, compiled_file: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command against the server; return its status and all its output."""

    def run(*argv: str) -> tuple[int, str]:
        files = [str(compiled_file)] if argv[0] in ("run", "schedule") else []
        more = [*files, "--endpoint", server.url]
        capsys.readouterr()
        # Options of the test come last, and win.
        status = kfp_runner.main([argv[0], *more, *argv[1:]])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run
