"""Errors of the servers on this machine, and limits that keep one client from blocking others."""

import asyncio
import contextlib
import ipaddress
import json
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline_def.apps.serve.options import Listening

_LOGGER = logging.getLogger(__name__)

# Closing the connection while the client still sends would keep it from reading the reason.
_LINGER_SECONDS = 2.0


class RequestError(Exception):
    """Refuses a request with an HTTP status and a message."""

    def __init__(self, status: int, text: str) -> None:
        """Store the HTTP status and the message."""
        super().__init__(text)
        self.status = status


class ErrorResponse(Response):
    """An error in JSON. It drains the request for a while, so that the client can read it."""

    def __init__(self, error: RequestError) -> None:
        """Set status, headers and body."""
        headers = {"retry-after": "1"} if error.status == 503 else {}
        headers["x-content-type-options"] = "nosniff"
        body = json.dumps({"error": str(error)})
        super().__init__(body, error.status, headers, "application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        is_read = scope.get("is_read", False)
        headers = [*self.raw_headers, *([] if is_read else [(b"connection", b"close")])]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": not is_read})
        if not is_read:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    await drain(receive, until_end=True)
            await send({"type": "http.response.body", "body": b""})


async def drain(receive: Receive, *, until_end: bool = False) -> None:
    """Read a request until the client disconnects, or to its end."""
    while (message := await receive())["type"] == "http.request":
        if until_end and not message.get("more_body", False):
            return


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


ERROR_HANDLERS: dict[Any, Any] = {
    RequestError: _refuse,
    HTTPException: _refuse_unknown,
    ClientDisconnect: _close,
    500: _fail,
}
"""Exception or status → what answers the request."""


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
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise RequestError(415, "Send the body uncompressed, without Content-Encoding.")
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

    def __init__(self, app: ASGIApp, options: Listening) -> None:
        """Wrap an application."""
        self._app, self._timeout = app, options.timeout
        # Against DNS rebinding: an attacker's domain may resolve to this machine, so that its page
        # could read our responses. Such a request carries the attacker's host name.
        self._names = {*_LOCAL_NAMES, options.host, *options.known_hosts}
        if not options.is_local:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._is_local = options.is_local

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

        scope["is_read"] = scope["method"] in ("GET", "HEAD")
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
        if name not in self._names and (self._is_local or _is_public(name)):
            return RequestError(
                403,
                f"This server does not accept the host name {name[:80]!r}: it accepts those of "
                "this machine, and of --hosts.",
            )
        # Browsers send it with requests by scripts of any page that the user visits.
        site = headers.get(b"sec-fetch-site", "")
        changes = scope["method"] not in ("GET", "HEAD")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or (changes and site in ("cross-site", "same-site")):
            return RequestError(403, "Cross-origin requests are not allowed.")
        return None


def _is_public(name: str) -> bool:
    """Return whether anybody could register a host name; addresses and single words are theirs."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name.strip("[]"))
        return False
    # RFC 6762 and 6761; ICANN has reserved "internal".
    return "." in name.rstrip(".") and not name.endswith((".local", ".localhost", ".internal"))


def _too_late(scope: Scope, timeout: float) -> RequestError:
    if scope["is_read"]:
        return RequestError(504, f"No answer within {timeout:g} s. Send fewer images or retry.")
    return RequestError(408, f"The request did not arrive within {timeout:g} s.")
