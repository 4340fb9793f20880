"""Retry requests to a store, and compare what arrives with the checksums of a listing.

Source: "Retry strategy" in the documentation of Cloud Storage: truncated exponential backoff with
jitter, a deadline, and only for requests that may safely be made twice.
"""

import asyncio
import base64
import collections
import hashlib
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import google_crc32c

from components.contract.errors import StorageError
from components.contract.printable import hide_login

_LOGGER = logging.getLogger(__name__)
_Response = TypeVar("_Response")


@dataclass(frozen=True)
class RetryPolicy:
    """Pauses, deadlines and timeouts of requests, in seconds."""

    first_pause: float = 0.5
    """Doubles with each attempt; jitter makes each pause up to half longer or shorter."""
    longest_pause: float = 16.0
    first_deadline: float = 12.0
    """For a kind of request that has never succeeded: the store or its address may be wrong."""
    deadline: float = 180.0
    """For a kind that has succeeded: a run survives minutes of outage or overload."""
    silence: float = 7.0
    """Timeout of a connection, and between two parts of a response."""

    def pause(self, attempt: int) -> float:
        """Return how long to wait after an attempt, counted from 0."""
        pause = min(self.longest_pause, self.first_pause * 2.0**attempt)
        return pause * random.uniform(0.5, 1.5)


RETRY_POLICY = RetryPolicy()

_clock = time.monotonic
_counts: collections.Counter[str] = collections.Counter()


def count_retries() -> dict[str, int]:
    """Return how often this process has retried requests: cause → retries."""
    return dict(sorted(_counts.items()))


def add_retries(counts: Mapping[str, int]) -> None:
    """Count retries of another process as those of this one."""
    _counts.update(counts)


async def pause_before_retry(cause: str, request: str, pause: float) -> None:
    """Count and log a retry, and wait before it."""
    _counts[cause] += 1
    _LOGGER.warning("Retrying in %.1f s after %s: %s", pause, cause, hide_login(request))
    await asyncio.sleep(pause)


class Retrier:
    """Retries requests to one store, and remembers which kinds of them have succeeded."""

    def __init__(self, find_cause: Callable[[Exception], str | None], store: str = "") -> None:
        """Retry errors for which `find_cause` returns a cause in a few words.

        After the deadline a `StorageError` names the `store`; without a name, the last error is
        raised.
        """
        self._store, self._find_cause = store, find_cause
        self._succeeded: set[str] = set()

    async def call(
        self, attempt: Callable[[], Awaitable[_Response]], *, kind: str, request: str
    ) -> _Response:
        """Call `attempt`, which makes a request once, until it succeeds or the deadline passes.

        Until a request of its `kind` succeeds, the deadline is shorter. `request` is for the log.
        """
        began = _clock()
        for number in itertools.count():
            try:
                response = await attempt()
            except Exception as error:
                if (cause := self._find_cause(error)) is None:
                    raise
                policy, seconds = RETRY_POLICY, _clock() - began
                deadline = policy.deadline if kind in self._succeeded else policy.first_deadline
                pause = policy.pause(number)
                if seconds + pause > deadline:
                    if not self._store:
                        raise
                    raise StorageError(
                        f"{self._store} does not serve requests: {cause}, {number + 1} times in "
                        f"{seconds:.0f} s. Check its address and the network, or wait, and run "
                        f"again."
                    ) from error
                await pause_before_retry(cause, request, pause)
            else:
                self._succeeded.add(kind)
                return response
        raise AssertionError


def checksum_matches(data: bytes, checksum: str) -> bool:
    """Compare data with the checksum of a listing; one of an unknown kind always matches."""
    kind, _, expected = checksum.partition(":")
    return kind not in _DIGESTS or digest(data, kind) == expected


def digest(data: bytes, kind: str) -> str:
    """Return the checksum of data, crc32c or md5, in base64, as stores list it."""
    return base64.b64encode(_DIGESTS[kind](data)).decode()


_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "crc32c": lambda data: google_crc32c.value(data).to_bytes(4, "big"),
    "md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
}
