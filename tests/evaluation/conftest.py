from __future__ import annotations

import pytest

from components.evaluation.metrics import intervals


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed up intervals whose width does not matter."""
    for name in ("_MOST_RESAMPLES", "_LEAST_RESAMPLES"):
        monkeypatch.setattr(intervals, name, 50)
