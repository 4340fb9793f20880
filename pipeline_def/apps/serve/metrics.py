"""Metrics of the server for Prometheus, its log of answers, and the ids of requests."""

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from components.contract.errors import ConfigurationError
from pipeline_def.apps.serve.batching import Prediction
from pipeline_def.apps.serve.limits import App, Message, Receive, Scope, Send

_LOGGER = logging.getLogger(__name__)

REQUEST_ID = b"x-request-id"
_PLAIN_ID = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_IMAGES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counts requests, images and batches of one server."""

    def __init__(self, version: Callable[[], str]) -> None:
        """Create the metrics; `version` returns the version in use."""
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "images_requests",
            "Requests by route and status",
            ["route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "images_request_seconds",
            "Time from the headers of a request to the end of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._open = Gauge("images_open_requests", "Requests in progress", registry=self.registry)
        self._answers = Counter(
            "images_answers",
            "Images by version and result: answered, unknown, refused",
            ["version", "result"],
            registry=self.registry,
        )
        self._batches = Histogram(
            "images_batch_size",
            "Images that the model predicted in one call",
            buckets=_IMAGES,
            registry=self.registry,
        )
        Gauge(
            "images_model_version",
            "Version in use, the time of its push in seconds since 1970",
            registry=self.registry,
        ).set_function(lambda: float(version()))

    def count_answers(self, version: str, rows: Sequence[Prediction]) -> None:
        """Count the images of an answered request."""
        for row in rows:
            unknown = "answered" if row.get("known", True) else "unknown"
            self._answers.labels(version, "refused" if row.get("error") else unknown).inc()

    def count_batch(self, images: int) -> None:
        """Count a call of the model."""
        self._batches.observe(images)

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, and their media type, as a scraper accepts them."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind

    def watch(self, app: App) -> App:
        """Return `app` with metrics and request ids."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            started, status, name = time.perf_counter(), 0, _read_id(scope)
            scope["request_id"] = name.decode()

            async def note(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    headers = [*message.get("headers", ()), (REQUEST_ID, name)]
                    message = {**message, "headers": headers}
                await send(message)

            self._open.inc()
            try:
                await app(scope, receive, note)
            finally:
                self._open.dec()
                seconds = time.perf_counter() - started
                # Without names and versions, of which clients could make any number.
                route = getattr(scope.get("endpoint"), "__name__", "other")
                self._requests.labels(route, str(status)).inc()
                self._seconds.labels(route).observe(seconds)

        return watched


def _read_id(scope: Scope) -> bytes:
    """Return the id that a client or proxy gave the request, if it is plain, or a new one."""
    given: bytes = dict(scope["headers"]).get(REQUEST_ID, b"")
    return given if _PLAIN_ID.fullmatch(given) else uuid.uuid4().hex.encode()


class AnswerLog:
    """Appends a line per answered image to a file; serving goes on while that fails."""

    def __init__(self, path: str, registry: CollectorRegistry) -> None:
        """Open the file once, to see that it can be written.

        Raises:
            ConfigurationError: it cannot be written.
        """
        self._path, self._is_failing = path, False
        self._lines = Counter(
            "images_log_lines", "Lines of the log: written, lost", ["result"], registry=registry
        )
        try:
            self._append("")
        except OSError as error:
            raise ConfigurationError(f"Cannot write --log {path}: {error.strerror}.") from error

    def add(self, request_id: str, version: str, rows: Sequence[Prediction]) -> None:
        """Write the answers of a request; refused images have no line."""
        lines = [_describe(request_id, version, row) for row in rows if not row.get("error")]
        # A line that failed may be cut off.
        start = "\n" if self._is_failing else ""
        try:
            self._append(start + "".join(lines))
        except OSError as error:
            self._lines.labels("lost").inc(len(lines))
            if not self._is_failing:
                _LOGGER.warning("The log fails, serving goes on: %s.", error.strerror)
            self._is_failing = True
        else:
            self._lines.labels("written").inc(len(lines))
            self._is_failing = False

    def _append(self, text: str) -> None:
        # Opened each time, so that the file may be moved or removed meanwhile.
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(text)


def _describe(request_id: str, version: str, row: Prediction) -> str:
    label, probabilities = row.get("label"), row.get("probabilities")
    fields = {
        "time": time.time(),
        "id": request_id,
        "version": version,
        "label": label.decode("utf-8", "replace") if isinstance(label, bytes) else label,
        "probability": max(probabilities) if probabilities else None,
        "known": row.get("known"),
    }
    return f"{json.dumps(fields)}\n"
