"""The routes of the server and their handlers: the page, two REST protocols, and metrics."""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from components.predict.model import DEFAULT_SIGNATURE
from pipeline_def.apps.serve.inference_protocol import BINARY, describe_model, parse_infer
from pipeline_def.apps.serve.limits import (
    ERROR_HANDLERS,
    BodyReader,
    Guard,
    RequestError,
    run_until_disconnect,
)
from pipeline_def.apps.serve.metrics import AnswerLog, Metrics
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.options import ServerOptions
from pipeline_def.apps.serve.page import make_page_routes
from pipeline_def.apps.serve.prediction import Predictor
from pipeline_def.apps.serve.rest import ImageRequest, parse_request
from pipeline_def.apps.serve.versions import Versions


class Service:
    """Handles requests with the current model."""

    def __init__(self, versions: Versions, options: ServerOptions) -> None:
        """Store the models and limits.

        Raises:
            ConfigurationError: the log cannot be written.
        """
        self._versions, self._options = versions, options
        self._bodies = BodyReader(options.max_request_bytes)
        self.metrics = Metrics()
        self._predictor = Predictor(options)
        self._log = AnswerLog(options.log) if options.log else None

    @contextlib.asynccontextmanager
    async def run(self, app: Any) -> AsyncIterator[None]:
        """Look for newer versions while the server runs."""
        watching = asyncio.create_task(self._versions.watch())
        yield
        watching.cancel()
        self._predictor.close()

    async def predict(self, request: Request) -> Response:
        """`POST /v1/models/NAME:predict`."""
        kind = request.headers.get("content-type", "")
        return await self._answer(request, functools.partial(parse_request, content_type=kind))

    async def infer(self, request: Request) -> Response:
        """`POST /v2/models/NAME/infer`."""
        if BINARY in request.headers:
            raise RequestError(400, "Send images as 'data' in base64, not as binary tensors.")
        return await self._answer(request, parse_infer)

    async def _answer(self, request: Request, parse: Callable[..., ImageRequest]) -> Response:
        """Parse a request, predict its images, and encode the predictions."""
        model = self._find(request)
        parse = functools.partial(parse, max_images=self._options.max_images)
        async with self._bodies.read(request) as body:
            request.scope["is_read"] = True
            parsed, files = await self._predictor.parse(body, parse)
            body.clear()
            work = self._predictor.predict(model, parsed.signature, files)
            rows = await run_until_disconnect(request, work)
        if parsed.signature == DEFAULT_SIGNATURE:
            self.metrics.count_answers(model.version, rows)
            if self._log:
                self._log.add(request.scope["request_id"], model.version, rows)
        answer = parsed.encode(rows, model=self._options.name, version=model.version)
        return Response(answer, media_type="application/json")

    async def describe(self, request: Request) -> Response:
        """`GET /v2/models/NAME`."""
        model = self._find(request)
        return JSONResponse(describe_model(self._options.name, model.version, model.signatures))

    async def ready(self, request: Request) -> Response:
        """`GET /v2/models/NAME/ready`."""
        self._find(request)
        return JSONResponse({"name": self._options.name, "ready": True})

    async def health(self, request: Request) -> Response:
        """`GET /v2/health/live` and `/ready`: a server answers once its model is loaded."""
        if request.path_params["what"] not in ("live", "ready"):
            raise HTTPException(404)
        return JSONResponse({request.path_params["what"]: True})

    async def server(self, request: Request) -> Response:
        """`GET /v2`."""
        return JSONResponse({"name": "tfx-image-pipeline", "version": "2", "extensions": []})

    async def expose(self, request: Request) -> Response:
        """`GET /metrics`."""
        content, kind = self.metrics.expose(request.headers.get("accept", ""))
        return Response(content, 200, {"content-type": kind})

    async def status(self, request: Request) -> Response:
        """`GET /v1/models/NAME`, with or without a version."""
        self._check_name(request)
        wanted = request.path_params.get("version")
        states = [state for state in self._versions.states if wanted in (None, state["version"])]
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

    async def labels(self, request: Request) -> Response:
        """`GET /labels.json`, for the page."""
        return JSONResponse(sorted(self._versions.current.labels))

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


def make_app(versions: Versions, options: ServerOptions, *, warning: str = "") -> ASGIApp:
    """Build the application with its limits; the page shows a `warning` about the model."""
    service = Service(versions, options)
    model, version = "/v1/models/{name}", "/versions/{version}"
    settings = {
        "model": f"/v1/models/{options.name}",
        # Base64 encodes three bytes in four.
        "most_bytes": int(options.max_request_bytes * 0.74),
        "warning": warning,
    }
    texts = {"/settings.json": (json.dumps(settings), "application/json")}
    routes = [*make_page_routes(__package__, texts), Route("/labels.json", service.labels)]
    for path in (model, f"{model}{version}"):
        routes += [
            Route(f"{path}:predict", service.predict, methods=["POST"]),
            Route(f"{path}/metadata", service.metadata),
            Route(path, service.status),
        ]
    model = "/v2/models/{name}"
    for path in (model, f"{model}{version}"):
        routes += [
            Route(f"{path}/infer", service.infer, methods=["POST"]),
            Route(f"{path}/ready", service.ready),
            Route(path, service.describe),
        ]
    routes += [
        Route("/v2", service.server),
        Route("/v2/health/{what}", service.health),
        Route("/metrics", service.expose),
    ]

    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, lifespan=service.run)
    return service.metrics.watch(Guard(app, options))
