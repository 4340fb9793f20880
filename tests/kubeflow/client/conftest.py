"""The stub of the service that the commands talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubeflow.client.kfp_server import KfpServer


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KFP_TOKEN", "KF_PIPELINES_SA_TOKEN_PATH", "KF_PIPELINES_UI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[KfpServer]:
    """A server of its own for each test."""
    with KfpServer() as running:
        yield running
