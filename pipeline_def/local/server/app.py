"""The routes of the server and their handlers: the page, and TensorFlow Serving's REST."""

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pipeline_def.local.server.limits import (
    App,
    BodyReader,
    ErrorResponse,
    Guard,
    run_until_disconnect,
)
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.options import ServerOptions
from pipeline_def.local.server.prediction import Predictor
from pipeline_def.local.server.rest import RequestError, encode_response
from pipeline_def.local.server.versions import Versions

_LOGGER = logging.getLogger(__name__)

# No external resources, no inline scripts, no framing by other pages.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; media-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


class Service:
    """Handles requests with the model in use."""

    def __init__(self, versions: Versions, options: ServerOptions) -> None:
        """Store the models and limits."""
        self._versions, self._options = versions, options
        self._bodies = BodyReader(options.max_request_bytes)
        self._predictor = Predictor(options)

    @contextlib.asynccontextmanager
    async def watch(self, app: Any) -> AsyncIterator[None]:
        """Watch for newer versions while the server runs."""
        watching = asyncio.create_task(self._versions.watch())
        yield
        watching.cancel()
        self._predictor.close()

    async def predict(self, request: Request) -> Response:
        """`POST /v1/models/NAME:predict`."""
        model = self._find(request)
        async with self._bodies.read(request) as body:
            request.scope["is_read"] = True
            parsed, files = await self._predictor.parse(body)
            body.clear()
            work = self._predictor.predict(model, parsed.signature, files)
            rows = await run_until_disconnect(request, work)
        return Response(
            encode_response(rows, by_rows=parsed.by_rows), media_type="application/json"
        )

    async def status(self, request: Request) -> Response:
        """`GET /v1/models/NAME`, with or without a version."""
        self._check_name(request)
        wanted = request.path_params.get("version")
        states = [one for one in self._versions.states if wanted in (None, one["version"])]
        if not states:
            raise RequestError(
                404, f"Could not find version {wanted} of model {self._options.name}"
            )
        return JSONResponse({"model_version_status": states})

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


def make_app(versions: Versions, options: ServerOptions) -> App:
    """Build the application with its limits."""
    service = Service(versions, options)
    model, version = "/v1/models/{name}", "/versions/{version}"
    routes = _page_routes(options)
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


def _page_routes(options: ServerOptions) -> list[Route]:
    """Return the routes of the page, whose files are read once."""
    here = "pipeline_def.local.server"
    # Base64 encodes three bytes in four.
    most = int(options.max_request_bytes * 0.74)
    settings = {"model": f"/v1/models/{options.name}", "most_bytes": most}
    files = {
        "/": (_read(here, "page.html"), "text/html"),
        # The colors are those of the report.
        "/style.css": (
            _read("components.report.page", "tokens.css") + _read(here, "style.css"),
            "text/css",
        ),
        "/page.js": (_read(here, "page.js"), "text/javascript"),
        "/settings.json": (json.dumps(settings), "application/json"),
    }
    return [
        Route(path, functools.partial(_answer, text, kind)) for path, (text, kind) in files.items()
    ]


def _read(package: str, name: str) -> str:
    return (resources.files(package) / "templates" / name).read_text(encoding="utf-8")


async def _answer(text: str, kind: str, request: Request) -> Response:
    return Response(text, 200, _HEADERS, kind)


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
