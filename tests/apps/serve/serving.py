"""A server in a thread of the test, and a client."""

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from pipeline_def.apps.serve.app import make_app
from pipeline_def.apps.serve.command import make_server
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.options import Listening, ServerOptions
from pipeline_def.apps.serve.versions import Versions

PREDICT = "/v1/models/images:predict"


@contextlib.contextmanager
def serving(model: Model, folder: Path, **options: Any) -> Iterator[int]:
    """Serve a model; yield the port."""
    (folder / model.version).mkdir(exist_ok=True)
    (folder / model.version / "saved_model.pb").touch()
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
