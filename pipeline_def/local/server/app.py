"""The routes of the server and their handlers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from components.images.check_result import Rejected
from components.images.options import ImageOptions
from components.images.servable import ServableFile, open_servable
from pipeline_def.local.server.batching import Batcher, BatchLimits, Picture, Prediction
from pipeline_def.local.server.limits import (
    App,
    BodyReader,
    ErrorResponse,
    Guard,
    PixelBudget,
    run_until_disconnect,
)
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.options import ServerOptions
from pipeline_def.local.server.page import page_routes
from pipeline_def.local.server.rest import (
    PredictRequest,
    RequestError,
    encode_response,
    parse_request,
)
from pipeline_def.local.server.versions import Versions

_LOGGER = logging.getLogger(__name__)

# Output of newer models: the reason why an image cannot be predicted, or "".
_ERROR = "error"

# Total pixels of the images that are converted or predicted, in multiples of the largest request.
_REQUESTS_AT_ONCE = 2


class Service:
    """Handles requests with the model in use."""

    def __init__(self, versions: Versions, options: ServerOptions) -> None:
        """Store the models and limits."""
        self._versions, self._options = versions, options
        self._bodies = BodyReader(options.max_request_bytes)
        self._pixels = PixelBudget(_REQUESTS_AT_ONCE * options.max_request_pixels)
        cores = os.cpu_count() or 1
        self._checks = ThreadPoolExecutor(cores, "check")
        # Large conversions leave cores to the model and to other clients' requests.
        self._conversions = ThreadPoolExecutor(max(1, cores // 2), "convert")
        self._models = ThreadPoolExecutor(4, "model")
        self._limits = BatchLimits(options.max_batch, delay=options.max_delay_ms / 1000)
        self._image_options = ImageOptions(
            check="header", max_image_mpixels=options.max_image_mpixels
        )
        self._reading = 0
        self._batchers: dict[str, Batcher] = {}
        self._batched: Model | None = None

    @contextlib.asynccontextmanager
    async def watch(self, app: Any) -> AsyncIterator[None]:
        """Watch for newer versions while the server runs."""
        watching = asyncio.create_task(self._versions.watch())
        yield
        watching.cancel()
        for threads in (self._checks, self._conversions, self._models):
            threads.shutdown(wait=False, cancel_futures=True)

    async def predict(self, request: Request) -> Response:
        """`POST /v1/models/NAME:predict`."""
        model = self._find(request)
        body = await self._bodies.read(request)
        request.scope["is_read"] = True
        try:
            with self._count_reading():
                parsed, files = await _run(self._checks, self._parse, body)
        finally:
            self._bodies.release(body)
        del body
        work = self._predict(model, parsed.signature, files)
        rows = await run_until_disconnect(request, work)
        return Response(
            encode_response(rows, by_rows=parsed.by_rows), media_type="application/json"
        )

    async def status(self, request: Request) -> Response:
        """`GET /v1/models/NAME`, with or without a version."""
        self._check_name(request)
        wanted = request.path_params.get("version")
        states = [one for one in self._versions.states if wanted in (None, one.version)]
        if not states:
            raise RequestError(
                404, f"Could not find version {wanted} of model {self._options.name}"
            )
        return JSONResponse({"model_version_status": [one.describe() for one in states]})

    async def metadata(self, request: Request) -> Response:
        """`GET /v1/models/NAME/metadata`, with or without a version."""
        model = self._find(request)
        name = self._options.name
        spec = {"name": name, "signature_name": "", "version": model.version}
        kind = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        signatures = {"@type": kind, "signature_def": dict(model.signatures)}
        return JSONResponse({"model_spec": spec, "metadata": {"signature_def": signatures}})

    def _check_name(self, request: Request) -> None:
        name = request.path_params["name"]
        if ":" in name:
            raise HTTPException(404)
        if name != self._options.name:
            raise RequestError(404, f"Servable not found for request: Latest({name[:80]})")

    def _find(self, request: Request) -> Model:
        """Return the requested model."""
        self._check_name(request)
        model, wanted = self._versions.current, request.path_params.get("version")
        if wanted not in (None, model.version):
            name = self._options.name
            raise RequestError(404, f"Servable not found for request: Specific({name}, {wanted})")
        return model

    @contextlib.contextmanager
    def _count_reading(self) -> Iterator[None]:
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    def _parse(self, body: bytearray) -> tuple[PredictRequest, list[ServableFile | Rejected]]:
        parsed = parse_request(body, max_images=self._options.max_images)
        files = [self._check(image) for image in parsed.images]
        most, pixels = self._options.max_request_pixels, _count_pixels(files)
        if pixels > most:
            raise RequestError(
                413,
                f"The images have {pixels / 1e6:.0f} million pixels in total; "
                f"at most {most / 1e6:g} million are allowed.",
            )
        return parsed, files

    def _check(self, image: bytes) -> ServableFile | Rejected:
        try:
            return open_servable(image, self._image_options)
        except Rejected as rejected:
            return rejected

    async def _convert(self, file: ServableFile | Rejected) -> Picture | Rejected:
        if isinstance(file, Rejected):
            return file
        if file.is_kept:
            return Picture(file.data, file.pixels)
        try:
            return Picture(await _run(self._conversions, file.convert), file.pixels)
        except Rejected as rejected:
            return rejected

    async def _predict(
        self, model: Model, signature: str, files: Sequence[ServableFile | Rejected]
    ) -> list[Prediction]:
        """Return the prediction of each picture.

        Models with an `error` output report bad images in it. For other models one bad image fails
        the request, as in TensorFlow Serving.
        """
        outputs = model.served_outputs.get(signature)
        if outputs is None:
            raise RequestError(
                400, f'Serving signature name: "{signature[:80]}" not found or not served'
            )
        if _ERROR not in outputs:
            _refuse_first([_explain(file) for file in files])
        async with self._pixels.reserve(_count_pixels(files)):
            # One at a time, so that a request which is canceled stops after the current image.
            pictures = [await self._convert(file) for file in files]
            reasons = [_explain(one) for one in pictures]
            if _ERROR not in outputs:
                _refuse_first(reasons)
            # The model predicts an empty file for a bad image; our reason replaces its own.
            batch = [one if isinstance(one, Picture) else Picture(b"", 0) for one in pictures]
            found = await self._find_batcher(model, signature).predict(batch)
        _refuse_first([str(one) if isinstance(one, RequestError) else "" for one in found])
        return [
            {**_unwrap(one), **({_ERROR: reason.encode()} if reason else {})}
            for one, reason in zip(found, reasons, strict=True)
        ]

    def _find_batcher(self, model: Model, signature: str) -> Batcher:
        """Return the batcher of a signature; an older model gets a temporary one."""
        if self._batched is not model:
            if model is not self._versions.current:
                return self._make_batcher(model, signature)
            self._batched, self._batchers = model, {}
        if signature not in self._batchers:
            self._batchers[signature] = self._make_batcher(model, signature)
        return self._batchers[signature]

    def _make_batcher(self, model: Model, signature: str) -> Batcher:
        predict = functools.partial(model.predict, signature)
        return Batcher(predict, self._models, self._limits, lambda: self._reading > 0)


async def _run(threads: ThreadPoolExecutor, function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)


def _count_pixels(files: Sequence[ServableFile | Rejected]) -> int:
    return sum(file.pixels for file in files if isinstance(file, ServableFile))


def _explain(found: object) -> str:
    return f"{found.category}: {found}" if isinstance(found, Rejected) else ""


def _refuse_first(reasons: Sequence[str]) -> None:
    for number, reason in enumerate(reasons):
        if reason:
            raise RequestError(400, f"Instance {number}: {reason}")


def _unwrap(found: Prediction | Exception) -> Prediction:
    if isinstance(found, Exception):
        raise found
    return found


def make_app(versions: Versions, options: ServerOptions) -> App:
    """Build the application with its limits."""
    service = Service(versions, options)
    model, version = "/v1/models/{name}", "/versions/{version}"
    routes = [*page_routes(options)]
    for path in (model, f"{model}{version}"):
        routes += [
            Route(f"{path}:predict", service.predict, methods=["POST"]),
            Route(f"{path}/metadata", service.metadata),
            Route(path, service.status),
        ]
    handlers: dict[Any, Any] = {
        RequestError: _refuse,
        HTTPException: _refuse_unknown,
        ClientDisconnect: _close,
        500: _fail,
    }
    return Guard(
        Starlette(routes=routes, exception_handlers=handlers, lifespan=service.watch), options
    )


async def _refuse(request: Request, error: RequestError) -> Response:
    return ErrorResponse(error)


async def _refuse_unknown(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    if error.status_code in (404, 405) and path.startswith("/v1/"):
        return ErrorResponse(RequestError(400, f"Malformed request: {request.method} {path[:200]}"))
    return ErrorResponse(RequestError(error.status_code, f"{error.detail}."))


async def _close(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=499)


async def _fail(request: Request, error: Exception) -> Response:
    _LOGGER.error("Request failed", exc_info=error)
    return ErrorResponse(RequestError(500, "Internal error; see the server log."))
