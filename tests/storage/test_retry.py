"""What is asked again, for how long, and what is said of it; no store is needed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from components.contract.errors import StorageError
from components.storage import retry
from components.storage.retry import Retrier, RetryPolicy


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = RetryPolicy(first_pause=0.001, longest_pause=0.01, first_deadline=0.05, deadline=0.5)
    monkeypatch.setattr(retry, "RETRY_POLICY", patience)
    monkeypatch.setattr(retry, "_counts", Counter())


def find_cause(error: Exception) -> str | None:
    return "a stall" if isinstance(error, TimeoutError) else None


def ask(asker: Retrier, *answers: Exception | str) -> tuple[str, int]:
    """Return the answer and the number of attempts; the last of `answers` is given for ever."""
    waiting: Iterator[Exception | str] = iter(answers)
    made = 0
    answer: Exception | str = ""

    async def attempt() -> str:
        nonlocal made, answer
        made += 1
        answer = next(waiting, answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return asyncio.run(asker.call(attempt, kind="read", request="GET x")), made


def test_what_passes_is_asked_again_and_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert ask(Retrier(find_cause), TimeoutError(), TimeoutError(), "here") == ("here", 3)
    assert retry.count_retries() == {"a stall": 2}
    assert caplog.text.count("after a stall: GET x") == 2


def test_what_stays_is_not_asked_again() -> None:
    with pytest.raises(PermissionError):
        ask(Retrier(find_cause), PermissionError(), "here")
    assert retry.count_retries() == {}


def test_patience_with_a_store_that_never_answered_ends_early() -> None:
    asker = Retrier(find_cause, "The store at home")
    with pytest.raises(StorageError, match="The store at home does not serve requests: a stall"):
        ask(asker, TimeoutError())
    early = sum(retry.count_retries().values())
    ask(asker, "here")
    with pytest.raises(StorageError, match="a stall"):
        ask(asker, TimeoutError())
    assert sum(retry.count_retries().values()) - early > 3 * early > 0


def test_an_asker_without_a_name_raises_the_last_error() -> None:
    with pytest.raises(TimeoutError):
        ask(Retrier(find_cause), TimeoutError())


def test_pauses_double_up_to_the_longest_and_differ() -> None:
    patience = RetryPolicy()
    pauses = [[patience.pause(attempt) for _ in range(50)] for attempt in range(10)]
    for attempt, of in enumerate(pauses):
        middle = min(16.0, 0.5 * 2**attempt)
        assert 0.5 * middle <= min(of) < max(of) <= 1.5 * middle
