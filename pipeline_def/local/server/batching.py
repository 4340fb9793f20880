"""Images of several requests, asked for at once."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.predict.halving import ask_each

Answer = dict[str, Any]
"""Output → value, of one image."""

Ask = Callable[[Sequence[bytes]], list[Answer]]
"""From files to an answer for each; raises where one of them cannot be answered."""


class Picture(NamedTuple):
    """An image that was found good enough to be asked for."""

    encoded: bytes
    pixels: int
    """Its width by its height."""


@dataclass(frozen=True)
class BatchLimits:
    """How images are put together."""

    images: int = 64
    """At most."""
    pixels: float = 64e6
    """At most, unless one image alone has more: they are decoded side by side."""
    delay: float = 0.002
    """Seconds that an image waits for others, and only while others are on their way."""


class _Waiting(NamedTuple):
    picture: Picture
    answer: asyncio.Future[Answer]


class Batcher:
    """Asks for the images that have come while it was asking for those before.

    A single request is not delayed. Under load batches grow by themselves.
    """

    def __init__(
        self,
        ask: Ask,
        threads: Executor,
        limits: BatchLimits,
        others_coming: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take what answers, and where.

        Args:
            ask: runs in one of `threads`, never twice at once.
            threads: to run it in.
            limits: of a batch.
            others_coming: whether there are images that will be here soon.
        """
        self._ask, self._threads, self._limits = ask, threads, limits
        self._others_coming = others_coming
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._worker: asyncio.Task[None] | None = None

    async def answer(self, pictures: Sequence[Picture]) -> list[Answer | Exception]:
        """Return an answer for each picture, or what kept it from being answered."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Answer]] = [loop.create_future() for _ in pictures]
        self._waiting.extend(map(_Waiting, pictures, futures))
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        try:
            found = await asyncio.gather(*futures, return_exceptions=True)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        return [one if isinstance(one, dict) else _as_exception(one) for one in found]

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                if len(self._waiting) < self._limits.images and self._others_coming():
                    await asyncio.sleep(self._limits.delay)
                batch = self._take()
                files = [one.picture.encoded for one in batch]
                answers = await loop.run_in_executor(self._threads, ask_each, self._ask, files)
                for one, answer in zip(batch, answers, strict=True):
                    _settle(one.answer, answer)
        finally:
            self._worker = None

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        pixels = 0
        while self._waiting and len(batch) < self._limits.images:
            one = self._waiting[0]
            if batch and pixels + one.picture.pixels > self._limits.pixels:
                break
            self._waiting.popleft()
            # Nobody waits any more for what was cancelled.
            if not one.answer.done():
                batch.append(one)
                pixels += one.picture.pixels
        return batch


def _settle(future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError("The request was cancelled.")
