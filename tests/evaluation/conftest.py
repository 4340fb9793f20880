from __future__ import annotations

import pytest

from components.evaluation.metrics import intervals


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let intervals be quick, where a test does not look at how wide they are."""
    for name in ("_MOST_RESAMPLES", "_LEAST_RESAMPLES"):
        monkeypatch.setattr(intervals, name, 50)
