"""Predicts the images of a request: small ones in batches with those of other requests."""

import asyncio
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from components.images.check import convert, count_pixels
from components.images.check_result import Rejected
from components.images.options import ImageOptions
from pipeline_def.apps.serve.batching import Batcher, BatchLimits, File, Picture, Prediction
from pipeline_def.apps.serve.limits import RequestError
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.options import ServerOptions
from pipeline_def.apps.serve.rest import ImageRequest

# Output of newer models: the reason why an image cannot be predicted, or "".
_ERROR = "error"

# Above so many pixels a request is large: its images are handled one by one, apart from others.
_LARGE = 1_000_000

# The current model, and the one before, with which requests in flight finish.
_MODELS = 2

LARGE_AT_ONCE = min(4, max(1, (os.cpu_count() or 1) // 2))
"""Large images that are handled at the same time; the other cores are for other requests."""


class Predictor:
    """Checks, converts and predicts images within limits of memory."""

    def __init__(self, options: ServerOptions) -> None:
        """Prepare threads."""
        self._options = options
        self._limits = ImageOptions(check="header", max_image_mpixels=options.max_image_mpixels)
        self._checks = ThreadPoolExecutor(os.cpu_count(), "check")
        self._models = ThreadPoolExecutor(4, "model")
        self._large = ThreadPoolExecutor(LARGE_AT_ONCE, "large")
        # Held until an image is predicted, so that memory does not grow with the requests.
        self._large_slots = asyncio.Semaphore(LARGE_AT_ONCE)
        self._reading = 0
        self._batchers: dict[Model, dict[tuple[str, bool], Batcher]] = {}

    def close(self) -> None:
        """End the threads."""
        for threads in (self._checks, self._models, self._large):
            threads.shutdown(wait=False, cancel_futures=True)

    async def parse(
        self, body: bytearray, parse: Callable[[bytearray], ImageRequest]
    ) -> tuple[ImageRequest, list[File]]:
        """Parse a request with `parse`, and check the headers of its images.

        Raises:
            RequestError: it is not a valid request, or too large.
        """
        self._reading += 1
        try:
            return await _run(self._checks, self._parse, body, parse)  # type: ignore[no-any-return]
        finally:
            self._reading -= 1

    def _parse(
        self, body: bytearray, parse: Callable[[bytearray], ImageRequest]
    ) -> tuple[ImageRequest, list[File]]:
        parsed = parse(body)
        files = [self._check(image) for image in parsed.images]
        most, total = self._options.max_request_mpixels, _count(files) / 1e6
        if total > most:
            raise RequestError(
                413,
                f"The images have {total:.0f} million pixels in total; at most {most:g} million "
                "are allowed.",
            )
        return parsed, files

    def _check(self, image: bytes) -> File:
        try:
            return Picture(image, count_pixels(image, self._limits))
        except Rejected as rejected:
            return rejected

    async def predict(
        self, model: Model, signature: str, files: Sequence[File]
    ) -> list[Prediction]:
        """Return the prediction of each image.

        Models of this pipeline report bad images in an output, `error`. With other models a bad
        image fails the request, as in TensorFlow Serving.

        Raises:
            RequestError: the model has no such signature, or cannot predict an image.
        """
        if signature not in model.served_outputs:
            raise RequestError(
                400, f'Serving signature name: "{signature[:80]}" not found or not served'
            )
        is_large = _count(files) > _LARGE
        batcher = self._find_batcher(model, signature, is_large=is_large)
        if not is_large:
            files = [await _run(self._checks, self._convert, file) for file in files]
            return await _predict(batcher, files)
        rows = []
        # One at a time, so that memory does not grow with the number of images.
        for number, file in enumerate(files):
            await self._large_slots.acquire()
            answering = asyncio.create_task(self._predict_large(batcher, file, number))
            # Threads cannot be stopped: a client that hangs up does not free the slot.
            answering.add_done_callback(self._free_slot)
            rows += await asyncio.shield(answering)
        return rows

    async def _predict_large(self, batcher: Batcher, file: File, number: int) -> list[Prediction]:
        converted = await _run(self._large, self._convert, file)
        return await _predict(batcher, [converted], first=number)

    def _free_slot(self, answering: asyncio.Task[list[Prediction]]) -> None:
        self._large_slots.release()
        if not answering.cancelled():
            # Otherwise asyncio would log an error for which no client waits.
            answering.exception()

    def _convert(self, file: File) -> File:
        if isinstance(file, Rejected):
            return file
        try:
            return file._replace(encoded=convert(file.encoded, self._limits))
        except Rejected as rejected:
            return rejected

    def _find_batcher(self, model: Model, signature: str, *, is_large: bool) -> Batcher:
        """Return the batcher of a signature; those of the oldest model are dropped."""
        if model not in self._batchers and len(self._batchers) == _MODELS:
            del self._batchers[next(iter(self._batchers))]
        batchers = self._batchers.setdefault(model, {})
        if (signature, is_large) not in batchers:
            batchers[signature, is_large] = Batcher(
                functools.partial(model.predict, signature),
                self._models,
                BatchLimits(LARGE_AT_ONCE) if is_large else BatchLimits(),
                lambda: self._reading > 0 and not is_large,
            )
        return batchers[signature, is_large]


async def _run(threads: Executor, function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)


async def _predict(batcher: Batcher, files: Sequence[File], *, first: int = 0) -> list[Prediction]:
    """Return a prediction of each converted file; of a rejected one the model's, for an empty file.

    Raises:
        RequestError: the model fails for a file. It has the file's number in its request, where the
            first file here is number `first`.
    """
    reasons = [f"{f.category}: {f}" if isinstance(f, Rejected) else "" for f in files]
    pictures = [file if isinstance(file, Picture) else Picture(b"", 0) for file in files]
    rows = []
    for number, (row, reason) in enumerate(
        zip(await batcher.predict(pictures), reasons, strict=True), first
    ):
        if isinstance(row, RequestError):
            raise RequestError(400, f"Instance {number}: {reason or row}")
        if isinstance(row, Exception):
            raise row
        rows.append({**row, _ERROR: reason.encode()} if reason else row)
    return rows


def _count(files: Sequence[File]) -> int:
    return sum(file.pixels for file in files if isinstance(file, Picture))
