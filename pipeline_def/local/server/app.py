"""The addresses of the server, and what is answered at each."""

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
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from components.images.check_result import Rejected
from components.images.options import ImageOptions
from components.images.servable import make_servable
from pipeline_def.local.server.batching import Answer, Batcher, BatchLimits, Picture
from pipeline_def.local.server.errors import Refused
from pipeline_def.local.server.limits import App, Bodies, Guard, Refusal
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.options import ServerOptions
from pipeline_def.local.server.page import page_routes
from pipeline_def.local.server.rest import Question, read_question, write_answer
from pipeline_def.local.server.versions import Versions

_LOGGER = logging.getLogger(__name__)

# An output of newer models: what is wrong with an image, "" if nothing is.
_ERROR = "error"


class Service:
    """Answers requests with the model in use."""

    def __init__(self, versions: Versions, options: ServerOptions) -> None:
        """Take the models, and the limits."""
        self._versions, self._options = versions, options
        self._bodies = Bodies(options.max_request_bytes)
        self._checks = ThreadPoolExecutor(os.cpu_count() or 1, "check")
        self._models = ThreadPoolExecutor(4, "model")
        self._limits = BatchLimits(options.max_batch, delay=options.max_delay_ms / 1000)
        self._image_options = ImageOptions(
            check="header", max_image_mpixels=options.max_image_mpixels
        )
        self._coming = 0
        self._batchers: dict[str, Batcher] = {}
        self._batched: Model | None = None

    @contextlib.asynccontextmanager
    async def watch(self, app: Any) -> AsyncIterator[None]:
        """Look for newer versions for as long as the server runs."""
        watching = asyncio.create_task(self._versions.watch())
        yield
        watching.cancel()
        self._checks.shutdown(wait=False, cancel_futures=True)
        self._models.shutdown(wait=False, cancel_futures=True)

    async def predict(self, request: Request) -> Response:
        """`POST /v1/models/NAME:predict`."""
        model = self._find(request)
        body = await self._bodies.read(request)
        request.scope["is_read"] = True
        try:
            with self._expecting():
                question, pictures = await self._in_thread(self._read, body)
        finally:
            self._bodies.release(body)
        del body
        rows = await self._ask(model, question, pictures)
        return Response(write_answer(rows, by_rows=question.by_rows), media_type="application/json")

    async def status(self, request: Request) -> Response:
        """`GET /v1/models/NAME`, with or without a version."""
        self._check_name(request)
        wanted = request.path_params.get("version")
        states = [one for one in self._versions.states if wanted in (None, one.version)]
        if not states:
            raise Refused(404, f"Could not find version {wanted} of model {self._options.name}")
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
            raise Refused(404, f"Servable not found for request: Latest({name[:80]})")

    def _find(self, request: Request) -> Model:
        """Return the model that is asked for."""
        self._check_name(request)
        model, wanted = self._versions.current, request.path_params.get("version")
        if wanted not in (None, model.version):
            name = self._options.name
            raise Refused(404, f"Servable not found for request: Specific({name}, {wanted})")
        return model

    @contextlib.contextmanager
    def _expecting(self) -> Iterator[None]:
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._checks, function, *arguments)

    def _read(self, body: bytearray) -> tuple[Question, list[Picture | Rejected]]:
        question = read_question(body, most=self._options.max_images)
        return question, [self._check(image) for image in question.images]

    def _check(self, image: bytes) -> Picture | Rejected:
        try:
            return Picture(*make_servable(image, self._image_options))
        except Rejected as rejected:
            return rejected

    async def _ask(
        self, model: Model, question: Question, pictures: Sequence[Picture | Rejected]
    ) -> list[Answer]:
        """Return an answer for each picture.

        Of a model that says itself what is wrong with an image, an answer may say so; for others
        one bad image fails the request, as with TensorFlow Serving.
        """
        outputs = model.asked.get(question.signature)
        if outputs is None:
            raise Refused(
                400, f'Serving signature name: "{question.signature[:80]}" not found or not served'
            )
        says_errors = _ERROR in outputs
        reasons = [_explain(one) for one in pictures]
        if not says_errors:
            _refuse_first(reasons)
        # Of what is no image such a model says so by itself; the words of the check are better.
        asked = [one if isinstance(one, Picture) else Picture(b"", 0) for one in pictures]
        found = await self._find_batcher(model, question.signature).answer(asked)
        _refuse_first([str(one) if isinstance(one, Refused) else "" for one in found])
        answers = [_take_answer(one) for one in found]
        return [
            {**answer, _ERROR: reason.encode()} if reason else answer
            for answer, reason in zip(answers, reasons, strict=True)
        ]

    def _find_batcher(self, model: Model, signature: str) -> Batcher:
        """Return the queue of a signature; those of an older model end with its last request."""
        if self._batched is not model:
            if model is not self._versions.current:
                return self._make_batcher(model, signature)
            self._batched, self._batchers = model, {}
        if signature not in self._batchers:
            self._batchers[signature] = self._make_batcher(model, signature)
        return self._batchers[signature]

    def _make_batcher(self, model: Model, signature: str) -> Batcher:
        ask = functools.partial(model.ask, signature)
        return Batcher(ask, self._models, self._limits, lambda: self._coming > 0)


def _explain(picture: Picture | Rejected) -> str:
    return f"{picture.category}: {picture}" if isinstance(picture, Rejected) else ""


def _refuse_first(reasons: Sequence[str]) -> None:
    for number, reason in enumerate(reasons):
        if reason:
            raise Refused(400, f"Instance {number}: {reason}")


def _take_answer(found: Answer | Exception) -> Answer:
    if isinstance(found, Exception):
        raise found
    return found


def make_app(versions: Versions, options: ServerOptions) -> App:
    """Build the application, with its limits around it."""
    service = Service(versions, options)
    model, version = "/v1/models/{name}", "/versions/{version}"
    routes = [*page_routes(options)]
    for path in (model, f"{model}{version}"):
        routes += [
            Route(f"{path}:predict", service.predict, methods=["POST"]),
            Route(f"{path}/metadata", service.metadata),
            Route(path, service.status),
        ]
    handlers: dict[Any, Any] = {Refused: _refuse, HTTPException: _refuse_unknown, 500: _fail}
    return Guard(
        Starlette(routes=routes, exception_handlers=handlers, lifespan=service.watch), options
    )


async def _refuse(request: Request, error: Refused) -> Response:
    return Refusal(error)


async def _refuse_unknown(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    if error.status_code in (404, 405) and path.startswith("/v1/"):
        return Refusal(Refused(400, f"Malformed request: {request.method} {path[:200]}"))
    return Refusal(Refused(error.status_code, f"{error.detail}."))


async def _fail(request: Request, error: Exception) -> Response:
    _LOGGER.error("A request failed.", exc_info=error)
    return Refusal(Refused(500, "Internal error; the log of the server says more."))
