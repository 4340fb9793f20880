"""Limits that keep one client from blocking the others: sizes, memory, timeouts and origins."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from pipeline_def.apps.serve.errors import (
    App,
    ErrorResponse,
    Message,
    Receive,
    RequestError,
    Scope,
    Send,
    drain,
)
from pipeline_def.apps.serve.options import Listening

_Result = TypeVar("_Result")

# Total size of all bodies, in multiples of the largest body allowed. Parsing JSON and decoding
# base64 take three times as much for a while.
_BODIES_AT_ONCE = 4

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class BodyReader:
    """Reads request bodies within a memory budget."""

    def __init__(self, max_bytes: int) -> None:
        """Allow `max_bytes` in one body."""
        self._max, self._budget = max_bytes, _BODIES_AT_ONCE * max_bytes
        self._held = 0

    @contextlib.asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """Yield the body; until the end of the block it, or its images, count as held.

        Raises:
            RequestError: the body is too large, or the budget is used up.
        """
        stated = request.headers.get("content-length", "0")
        body = bytearray()
        # Python refuses to parse numbers with too many digits.
        self._check(int(stated[:18]) if stated.isdecimal() else 0)
        held = 0
        try:
            async for chunk in request.stream():
                self._check(held + len(chunk), more=len(chunk))
                body += chunk
                held += len(chunk)
                self._held += len(chunk)
            yield body
        finally:
            self._held -= held

    def _check(self, size: int, more: int | None = None) -> None:
        if size > self._max:
            raise RequestError(413, f"The request exceeds the limit of {self._max / 2**20:g} MiB.")
        if self._held + (size if more is None else more) > self._budget:
            raise RequestError(503, "Too many large requests at once. Try again.")


async def run_until_disconnect(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work`, and cancel it if the client disconnects. The body must have been read.

    Raises:
        ClientDisconnect: the client disconnected.
    """
    task = asyncio.create_task(work)
    disconnect = asyncio.create_task(drain(request.receive))
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        disconnect.cancel()


class Guard:
    """Enforces the timeout, and refuses foreign host names and cross-origin requests."""

    def __init__(self, app: App, options: Listening) -> None:
        """Wrap an application."""
        self._app, self._timeout = app, options.timeout
        # Against DNS rebinding: an attacker's domain may resolve to this machine, so that its page
        # could read our responses. Such a request carries the attacker's host name.
        self._names = {*_LOCAL_NAMES, options.host} if options.is_local else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or send the reason why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        scope["is_read"] = False
        refused = self._check_origin(scope)
        try:
            async with asyncio.timeout(self._timeout):
                if refused is None:
                    await self._app(scope, receive, note)
        except TimeoutError:
            refused = _too_late(scope, self._timeout)
        if started and refused:
            raise TimeoutError("The client did not read the response in time.")
        if refused:
            await ErrorResponse(refused)(scope, receive, send)

    def _check_origin(self, scope: Scope) -> RequestError | None:
        headers = {name: value.decode("latin-1").lower() for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._names is not None and name not in self._names:
            return RequestError(403, "This server only accepts the host names of this machine.")
        # Browsers send it with requests by scripts of any page that the user visits.
        site = headers.get(b"sec-fetch-site", "")
        changes = scope["method"] not in ("GET", "HEAD")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or (changes and site in ("cross-site", "same-site")):
            return RequestError(403, "Cross-origin requests are not allowed.")
        return None


def _too_late(scope: Scope, timeout: float) -> RequestError:
    if scope["is_read"]:
        return RequestError(504, f"No prediction within {timeout:g} s. Send fewer images or retry.")
    if scope["method"] in ("GET", "HEAD"):
        return RequestError(504, f"No answer within {timeout:g} s. Try again.")
    return RequestError(408, f"The request did not arrive within {timeout:g} s.")
