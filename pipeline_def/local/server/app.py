"""The routes of the server and their handlers: the page, two REST protocols, and metrics."""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from components.predict.model import DEFAULT_SIGNATURE
from pipeline_def.local.pushed_model import find_color
from pipeline_def.local.server.answer_log import AnswerLog, LogLimits
from pipeline_def.local.server.batching import File, Prediction
from pipeline_def.local.server.canary import Canary
from pipeline_def.local.server.inference_protocol import (
    JSON_LENGTH,
    describe_model,
    encode_infer,
    parse_infer,
)
from pipeline_def.local.server.limits import (
    App,
    BodyReader,
    Guard,
    run_until_disconnect,
)
from pipeline_def.local.server.measurement import find_measure
from pipeline_def.local.server.metrics import Metrics
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.options import ServerOptions
from pipeline_def.local.server.page import ERROR_HANDLERS, make_page_routes
from pipeline_def.local.server.prediction import ParsedRequest, Predictor
from pipeline_def.local.server.rest import (
    RequestError,
    encode_response,
    parse_object,
    parse_request,
)
from pipeline_def.local.server.versions import Versions


class Service:
    """Handles requests with the model in use."""

    def __init__(self, versions: Versions, options: ServerOptions) -> None:
        """Store the models and limits."""
        self._versions, self._options = versions, options
        self._bodies = BodyReader(options.max_request_bytes)
        self.metrics = Metrics(lambda: versions.current.version)
        color = find_color(options.output, versions.current.version)
        self._predictor = Predictor(options, self.metrics.count_batch, color=color)
        self._log = self._open_log(options.log) if options.log else None

    def _open_log(self, folder: str) -> AnswerLog:
        options = self._options
        limits = LogLimits(options.log_days, options.log_gib * 2**30, options.log_pictures)
        measure = functools.partial(find_measure, options.output)
        return AnswerLog(folder, limits, measure, self.metrics.registry)

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Watch for newer versions while the server runs."""
        watching = asyncio.create_task(self._versions.watch())
        yield
        watching.cancel()
        self._predictor.close()
        if self._log:
            self._log.close()

    async def predict(self, request: Request) -> Response:
        """`POST /v1/models/NAME:predict`."""
        model = self._find(request)
        parse = functools.partial(parse_request, max_images=self._options.max_images)
        parsed, rows, _ = await self._answer(request, model, parse)
        return Response(
            encode_response(rows, by_rows=parsed.by_rows), media_type="application/json"
        )

    async def infer(self, request: Request) -> Response:
        """`POST /v2/models/NAME/infer`."""
        model = self._find(request)
        parse = functools.partial(
            parse_infer,
            json_length=request.headers.get(JSON_LENGTH),
            max_images=self._options.max_images,
        )
        parsed, rows, model = await self._answer(request, model, parse)
        name = self._options.name
        body, length = encode_infer(parsed, rows, model=name, version=model.version)
        if length is None:
            return Response(body, media_type="application/json")
        return Response(body, 200, {JSON_LENGTH: str(length)}, "application/octet-stream")

    async def _answer(
        self, request: Request, model: Model, parse: Callable[[bytearray], ParsedRequest]
    ) -> tuple[ParsedRequest, list[Prediction], Model]:
        """Return the parsed request, the prediction of each image, and the model that made them."""
        async with self._bodies.read(request) as body:
            request.scope["is_read"] = True
            parsed, files = await self._predictor.parse(body, parse)
            body.clear()
            if canary := self._find_canary(request, parsed.signature):
                both = self._answer_twice(request, canary, files)
                answers = await run_until_disconnect(request, both)
            else:
                work = self._predictor.predict(model, parsed.signature, files)
                answers = {model: await run_until_disconnect(request, work)}
        for model, rows in answers.items():
            self.metrics.count_answers(model.version, rows)
            if self._log and parsed.signature == DEFAULT_SIGNATURE:
                self._log.add(model.version, files, rows)
        return parsed, rows, model

    def _find_canary(self, request: Request, signature: str) -> Canary | None:
        """Return what also answers a request, if it does."""
        canary = self._versions.canary
        is_free = signature == DEFAULT_SIGNATURE and "version" not in request.path_params
        return canary if canary and is_free and canary.takes(request.scope["request_id"]) else None

    async def _answer_twice(
        self, request: Request, canary: Canary, files: Sequence[File]
    ) -> dict[Model, list[Prediction]]:
        """Return the predictions of both versions, those for the client last."""
        models = canary.old, canary.model
        work = (self._predictor.predict(model, DEFAULT_SIGNATURE, files) for model in models)
        old, new = await asyncio.gather(*work, return_exceptions=True)
        if isinstance(old, BaseException):
            raise old
        if isinstance(new, RequestError) and new.status == 503:  # The machine lacks memory.
            return {canary.old: old}
        if isinstance(new, BaseException):
            self._versions.settle(canary, False, f"it fails on request: {new}")
            return {canary.old: old}
        verdict = canary.compare(request.scope["request_id"], old, new)
        self._versions.settle(canary, verdict)
        return {canary.old: old, canary.model: new}

    async def learn(self, request: Request) -> Response:
        """`POST /v1/models/NAME:feedback`."""
        self._check_name(request)
        async with self._bodies.read(request) as body:
            fields = parse_object(body, max_images=self._options.max_images)
        name, labels = fields.get("id"), fields.get("labels")
        is_list = isinstance(labels, list) and all(isinstance(one, str) for one in labels)
        if not isinstance(name, str) or not labels or not is_list:
            raise RequestError(
                400, "Expecting 'id', the X-Request-ID of a request, and 'labels', a list."
            )
        canary = self._versions.canary
        return JSONResponse({"counted": canary.learn(name, labels) if canary else 0})

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
        extensions = ["binary_tensor_data"]
        return JSONResponse(
            {"name": "tfx-image-pipeline", "version": "2", "extensions": extensions}
        )

    async def expose(self, request: Request) -> Response:
        """`GET /metrics`."""
        content, kind = self.metrics.expose(request.headers.get("accept", ""))
        return Response(content, 200, {"content-type": kind})

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
        wanted, canary = request.path_params.get("version"), self._versions.canary
        for model in (self._versions.current, *([canary.model] if canary else [])):
            if wanted in (None, model.version):
                return model
        name = self._options.name
        raise RequestError(404, f"Servable not found for request: Specific({name}, {wanted})")


def make_app(versions: Versions, options: ServerOptions) -> App:
    """Build the application with its limits."""
    service = Service(versions, options)
    model, version = "/v1/models/{name}", "/versions/{version}"
    routes = [*_make_page_routes(options), Route("/labels.json", service.labels)]
    for path in (model, f"{model}{version}"):
        routes += [
            Route(f"{path}:predict", service.predict, methods=["POST"]),
            Route(f"{path}:feedback", service.learn, methods=["POST"]),
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

    @contextlib.asynccontextmanager
    async def run(_: Any) -> AsyncIterator[None]:
        async with service.watch(), _serving_grpc(limited, options):
            yield

    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, lifespan=run)
    limited = service.metrics.watch(Guard(app, options), log=options.access_log)
    return limited


def _serving_grpc(app: App, options: ServerOptions) -> contextlib.AbstractAsyncContextManager[None]:
    if options.grpc_port is None:
        return contextlib.nullcontext()
    # Takes a tenth of a second to import.
    from pipeline_def.local.server.grpc_protocol import serving_grpc

    return serving_grpc(app, options)


def _make_page_routes(options: ServerOptions) -> list[Route]:
    # Base64 encodes three bytes in four.
    most = int(options.max_request_bytes * 0.74)
    settings = {"model": f"/v1/models/{options.name}", "most_bytes": most}
    texts = {"/settings.json": (json.dumps(settings), "application/json")}
    return make_page_routes("pipeline_def.local.server", texts)
