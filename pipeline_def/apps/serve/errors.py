"""Errors of the servers on this machine, and the answers to them: `{"error": SENTENCE}`."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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
