"""Combine the images of several requests into batches."""

import asyncio
import collections
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.images.check_result import Rejected
from components.predict.model import predict_each

Prediction = dict[str, Any]
"""Output → value, of one image."""

Predict = Callable[[Sequence[bytes]], list[Prediction]]
"""Maps files to predictions; raises if one of the files cannot be predicted."""


class Picture(NamedTuple):
    """An image that passed the checks."""

    encoded: bytes
    pixels: int
    """Width times height."""


File = Picture | Rejected
"""An image that passed the checks, or the reason why not."""


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a batch."""

    images: int = 64
    """Maximum number of images."""
    pixels: float = 64e6
    """Maximum number of pixels, unless a single image has more. A batch is decoded at once."""
    delay: float = 0.002
    """Seconds to wait for more images, only while other requests are being read."""


class _Waiting(NamedTuple):
    picture: Picture
    prediction: asyncio.Future[Prediction]


class Batcher:
    """Batches the images that arrive while the model is busy with the previous batch.

    A single request is not delayed. Batches grow under load.
    """

    def __init__(
        self,
        predict: Predict,
        threads: Executor,
        limits: BatchLimits,
        others_coming: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run `predict` in one of `threads`, one call at a time.

        `others_coming` returns whether other requests are being read.
        """
        self._predict, self._threads, self._limits = predict, threads, limits
        self._others_coming = others_coming
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._worker: asyncio.Task[None] | None = None

    async def predict(self, pictures: Sequence[Picture]) -> list[Prediction | Exception]:
        """Return the prediction or exception of each picture."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Prediction]] = [loop.create_future() for _ in pictures]
        self._waiting.extend(map(_Waiting, pictures, futures))
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        try:
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        canceled = RuntimeError("The request was canceled.")
        return [row if isinstance(row, dict | Exception) else canceled for row in outcomes]

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                if len(self._waiting) < self._limits.images and self._others_coming():
                    await asyncio.sleep(self._limits.delay)
                batch = self._take()
                files = [waiting.picture.encoded for waiting in batch]
                predictions = await loop.run_in_executor(
                    self._threads, predict_each, self._predict, files
                )
                for (_, future), prediction in zip(batch, predictions, strict=True):
                    if future.done():
                        continue
                    if isinstance(prediction, Exception):
                        future.set_exception(prediction)
                    else:
                        future.set_result(prediction)
        finally:
            self._worker = None

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        pixels = 0
        while self._waiting and len(batch) < self._limits.images:
            first = self._waiting[0]
            if batch and pixels + first.picture.pixels > self._limits.pixels:
                break
            self._waiting.popleft()
            # Skip cancelled requests.
            if not first.prediction.done():
                batch.append(first)
                pixels += first.picture.pixels
        return batch
