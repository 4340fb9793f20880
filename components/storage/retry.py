"""Asking a store again after what passes: when, how long, how often, and what is said of it.

Source: "Retry strategy" in the documentation of Cloud Storage: truncated exponential backoff with
jitter, a deadline, and only for requests that may safely be made twice.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from components.contract.errors import StorageError

_LOGGER = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class RetryPolicy:
    """How long a store is asked again; seconds."""

    first_pause: float = 0.5
    """Doubles from one attempt to the next; each is stretched or shortened at random by half."""
    longest_pause: float = 16.0
    first_deadline: float = 12.0
    """For a kind of request that has never been answered: the store or its address is wrong."""
    deadline: float = 180.0
    """For one that has been: an outage, or a store under load, of which a run survives minutes."""
    silence: float = 7.0
    """A connection, or the rest of an answer, that does not come for so long is given up."""

    def pause(self, attempt: int) -> float:
        """Return how long to wait after an attempt, 0 for the first."""
        pause = min(self.longest_pause, self.first_pause * 2.0**attempt)
        return pause * random.uniform(0.5, 1.5)


RETRY_POLICY = RetryPolicy()

_clock = time.monotonic
_counts: collections.Counter[str] = collections.Counter()


def count_retries() -> dict[str, int]:
    """Return how often this process has asked a store again: cause → requests."""
    return dict(sorted(_counts.items()))


def note_retry(cause: str, request: str, pause: float) -> None:
    """Count and log that a request is about to be made again."""
    _counts[cause] += 1
    _LOGGER.warning("Asking again in %.1f s after %s: %s", pause, cause, request)


class Retrier:
    """Asks one store, and remembers which kinds of requests it has answered."""

    def __init__(self, find_cause: Callable[[Exception], str | None], store: str = "") -> None:
        """Ask a store.

        Args:
            find_cause: says in a few words what passes; None for an error that stays.
            store: its name, for the sentence that ends all patience; "": the last error does.
        """
        self._store, self._find_cause = store, find_cause
        self._answered: set[str] = set()

    async def call(
        self, attempt: Callable[[], Awaitable[_Answer]], *, kind: str, request: str
    ) -> _Answer:
        """Return the answer to a request, which is made until there is one or patience ends.

        Args:
            attempt: makes the request once.
            kind: of the request; the first of a kind has less patience.
            request: in words, for the log.

        Raises:
            StorageError: the store has not answered until the deadline.
            Exception: what `attempt` raised, if it does not pass.
        """
        began = _clock()
        for number in itertools.count():
            try:
                answer = await attempt()
            except Exception as error:
                cause = self._find_cause(error)
                if cause is None:
                    raise
                pause = RETRY_POLICY.pause(number)
                if _clock() - began + pause > self._deadline(kind):
                    if not self._store:
                        raise
                    raise self._give_up(cause, number + 1, _clock() - began) from error
                note_retry(cause, request, pause)
                await asyncio.sleep(pause)
            else:
                self._answered.add(kind)
                return answer
        raise AssertionError

    def _deadline(self, kind: str) -> float:
        return RETRY_POLICY.deadline if kind in self._answered else RETRY_POLICY.first_deadline

    def _give_up(self, cause: str, attempts: int, seconds: float) -> StorageError:
        return StorageError(
            f"{self._store} does not serve requests: {cause}, {attempts} times within "
            f"{seconds:.0f} s. Check its address and the network, or wait, and run again."
        )


def error_code(error: Exception) -> str:
    """Return what S3 calls the error of an answer; "" if it is none of its own."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
