"""Metrics of the server for Prometheus, its log of answers, and the ids of requests."""

import json
import logging
import re
import time
import uuid
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.contract.errors import ConfigurationError
from pipeline_def.apps.serve.batching import Prediction

_LOGGER = logging.getLogger(__name__)

REQUEST_ID = b"x-request-id"
_PLAIN_ID = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counts and times the requests of one server, and counts its answers."""

    def __init__(self) -> None:
        """Create the metrics."""
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "images_request_seconds",
            "Time from the headers of a request to the end of its answer",
            ["route", "status"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._answers = Counter(
            "images_answers",
            "Images by version and result: answered, unknown, refused",
            ["version", "result"],
            registry=self._registry,
        )

    def count_answers(self, version: str, rows: Sequence[Prediction]) -> None:
        """Count the images of an answered request."""
        for row in rows:
            unknown = "answered" if row.get("known", True) else "unknown"
            self._answers.labels(version, "refused" if row.get("error") else unknown).inc()

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, and their media type, as a scraper accepts them."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    def watch(self, app: ASGIApp) -> ASGIApp:
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

            try:
                await app(scope, receive, note)
            finally:
                seconds = time.perf_counter() - started
                # Without names and versions, of which clients could make any number.
                route = getattr(scope.get("endpoint"), "__name__", "other")
                self._seconds.labels(route, str(status)).observe(seconds)

        return watched


def _read_id(scope: Scope) -> bytes:
    """Return the id that a client or proxy gave the request, if it is plain, or a new one."""
    given: bytes = dict(scope["headers"]).get(REQUEST_ID, b"")
    return given if _PLAIN_ID.fullmatch(given) else uuid.uuid4().hex.encode()


class AnswerLog:
    """Appends a line per answered image to a file; serving goes on while that fails."""

    def __init__(self, path: str) -> None:
        """Open the file once, to see that it can be written.

        Raises:
            ConfigurationError: it cannot be written.
        """
        self._path, self._is_failing = path, False
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
            if not self._is_failing:
                _LOGGER.warning("The log fails, serving goes on: %s.", error.strerror)
            self._is_failing = True
        else:
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
