"""A model without TensorFlow, a server of it in a thread of the test, and a client."""

import asyncio
import base64
import contextlib
import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from starlette.types import ASGIApp

from pipeline_def.apps.serve.app import make_app
from pipeline_def.apps.serve.command import make_server
from pipeline_def.apps.serve.limits import RequestError
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.options import Listening, ServerOptions
from pipeline_def.apps.serve.versions import Versions
from tests.pictures import encode

PREDICT = "/v1/models/images:predict"


class FakeModel(Model):
    """Answers with the color after `seconds`; a broken file fails the batch, as TensorFlow does."""

    def __init__(
        self, version: str = "1", *, seconds: float = 0.0, says_errors: bool = False
    ) -> None:
        self.version, self._seconds, self._says_errors = version, seconds, says_errors
        outputs = ["label", "probabilities", *(["error"] if says_errors else [])]
        self.signatures: dict[str, Any] = {
            "serving_default": {"inputs": {"image_bytes": {}}, "outputs": {}},
            "serving_examples": {"inputs": {"examples": {}}, "outputs": {}},
        }
        self.served_outputs = {"serving_default": outputs, "explain": ["picture_bytes"]}
        self.batches: list[int] = []
        self._running = threading.Lock()

    def predict(self, signature: str, files: Sequence[bytes]) -> list[dict[str, Any]]:
        assert self._running.acquire(blocking=False), "asked twice at once"
        try:
            self.batches.append(len(files))
            time.sleep(self._seconds)
            return [self._answer(signature, file) for file in files]
        finally:
            self._running.release()

    def _answer(self, signature: str, file: bytes) -> dict[str, Any]:
        try:
            red, green, blue = Image.open(io.BytesIO(file)).convert("RGB").getpixel((0, 0))  # type: ignore[misc]
        except Exception as error:
            if self._says_errors:
                return {"error": b"no image", "label": b"", "probabilities": [0.0, 0.0, 0.0]}
            raise RequestError(400, "cannot decode") from error
        if signature == "explain":
            return {"picture_bytes": file}
        answer = {
            "label": b"%d %d %d" % (red, green, blue),
            "probabilities": [red / 255, green / 255, blue / 255],
        }
        return answer | ({"error": b""} if self._says_errors else {})


def png(
    red: int,
    green: int = 0,
    blue: int = 0,
    *,
    kind: str = "PNG",
    size: tuple[int, int] = (8, 6),
    **options: Any,
) -> bytes:
    """A file of one colour."""
    return encode(Image.new("RGB", size, (red, green, blue)), kind, **options)


def push(folder: Path, version: str, *, whole: bool = True) -> None:
    """Make the folder of a version, with its graph if it is whole."""
    (folder / version).mkdir(parents=True, exist_ok=True)
    if whole:
        (folder / version / "saved_model.pb").touch()


@contextlib.contextmanager
def serving(model: Model, folder: Path, **options: Any) -> Iterator[int]:
    """Serve a model; yield the port."""
    push(folder, model.version)
    with running(Versions(str(folder), lambda path: model), **options) as port:
        yield port


@contextlib.contextmanager
def running(versions: Versions, **options: Any) -> Iterator[int]:
    """Serve whatever version is current; yield the port."""
    chosen = ServerOptions(**options)
    with running_app(make_app(versions, chosen), chosen) as port:
        yield port


@contextlib.contextmanager
def running_app(app: ASGIApp, options: Listening) -> Iterator[int]:
    """Serve an application; yield the port."""
    server = make_server(app, options)

    async def look_often() -> None:
        while not await server.on_tick(0):
            await asyncio.sleep(0.01)

    server.main_loop = look_often  # type: ignore[method-assign]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def ask(
    port: int,
    path: str = PREDICT,
    body: Any = None,
    method: str = "",
    timeout: float = 30,
    **headers: str,
) -> tuple[int, Any]:
    """Send a request; return status and JSON of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    with contextlib.closing(connection):
        connection.request(method or ("GET" if body is None else "POST"), path, data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def instances(*files: bytes, **fields: str) -> dict[str, Any]:
    """Body of a request for files."""
    return {"instances": [{"b64": base64.b64encode(file).decode()} for file in files], **fields}
