"""Retries without a store: which errors, for how long, and what is logged."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from components.contract.errors import StorageError
from components.storage import retry
from components.storage.retry import Retrier, RetryPolicy


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = RetryPolicy(first_pause=0.001, longest_pause=0.01, first_deadline=0.02, deadline=0.2)
    monkeypatch.setattr(retry, "RETRY_POLICY", policy)
    monkeypatch.setattr(retry, "_counts", Counter())


def find_cause(error: Exception) -> str | None:
    return "a stall" if isinstance(error, TimeoutError) else None


def call(retrier: Retrier, *results: Exception | str) -> tuple[str, int]:
    """Return the result and the number of attempts; the last of `results` repeats forever."""
    waiting: Iterator[Exception | str] = iter(results)
    calls = 0
    result: Exception | str = ""

    async def attempt() -> str:
        nonlocal calls, result
        calls += 1
        result = next(waiting, result)
        if isinstance(result, Exception):
            raise result
        return result

    return asyncio.run(retrier.call(attempt, kind="read", request="GET http://me:secret@x")), calls


def test_temporary_errors_are_retried_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert call(Retrier(find_cause), TimeoutError(), TimeoutError(), "here") == ("here", 3)
    with pytest.raises(PermissionError):
        call(Retrier(find_cause), PermissionError(), "here")
    assert retry.count_retries() == {"a stall": 2}
    assert caplog.text.count("after a stall: GET http://x\n") == 2


def test_the_deadline_is_shorter_until_a_request_succeeds() -> None:
    retrier = Retrier(find_cause, "The store at home")
    with pytest.raises(StorageError, match="The store at home does not serve requests: a stall"):
        call(retrier, TimeoutError())
    early = sum(retry.count_retries().values())
    call(retrier, "here")
    with pytest.raises(StorageError, match="a stall"):
        call(retrier, TimeoutError())
    assert sum(retry.count_retries().values()) - early > 2 * early > 0
