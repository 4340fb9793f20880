"""What keeps one client from taking the server away from the others: sizes, times, addresses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pipeline_def.local.server.errors import Refused, to_json
from pipeline_def.local.server.options import ServerOptions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Of all bodies together, in sizes of the largest one; JSON and what is decoded from base64 take
# three times as much, for a while.
_BODIES_AT_ONCE = 4

# While a client still sends, closing the connection would keep it from reading why.
_LINGER_SECONDS = 2.0

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Bodies:
    """Reads bodies, as many at a time as there is memory for."""

    def __init__(self, most: int) -> None:
        """Allow `most` bytes in one body."""
        self._most, self._all = most, _BODIES_AT_ONCE * most
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._held

    def release(self, body: bytearray) -> None:
        """Count a body no more."""
        self._held -= len(body)

    async def read(self, request: Request) -> bytearray:
        """Return the body, which `release` has to be told of.

        Raises:
            Refused: it is too large, or there are too many.
        """
        stated = request.headers.get("content-length", "0")
        body = bytearray()
        # Of too many digits Python makes no number.
        self._check(int(stated[:18]) if stated.isdecimal() else 0)
        try:
            async for chunk in request.stream():
                self._check(len(body) + len(chunk), more=len(chunk))
                body += chunk
                self._held += len(chunk)
        except BaseException:
            self.release(body)
            raise
        return body

    def _check(self, size: int, more: int | None = None) -> None:
        if size > self._most:
            mib = self._most / 2**20
            raise Refused(413, f"The request is larger than {mib:g} MiB, the most that is taken.")
        if self._held + (size if more is None else more) > self._all:
            raise Refused(503, "Too many large requests at once: try again.")


class Guard:
    """Ends every request in time, and answers none that a foreign page has sent here."""

    def __init__(self, app: App, options: ServerOptions) -> None:
        """Guard an application."""
        self._app, self._timeout = app, options.timeout
        # A name in somebody's own domain may point at this machine, and their page read our
        # answers; such a request has that name in it.
        self._names = {*_LOCAL_NAMES, options.host} if options.is_local else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        scope["is_read"] = False
        refused = self._check_name(scope)
        try:
            async with asyncio.timeout(self._timeout):
                if refused is None:
                    await self._app(scope, receive, note)
        except TimeoutError:
            refused = _too_late(scope, self._timeout)
        except ClientDisconnect:
            return
        if started and refused:
            raise TimeoutError("The client did not read the answer in time.")
        if refused:
            await Refusal(refused)(scope, receive, send)

    def _check_name(self, scope: Scope) -> Refused | None:
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._names is None or name.lower() in self._names:
            return None
        return Refused(403, "This server answers to the names of this machine only.")


def _too_late(scope: Scope, timeout: float) -> Refused:
    if scope["is_read"]:
        return Refused(504, f"No answer within {timeout:g} s: try again, or with fewer images.")
    return Refused(408, f"The request was not here within {timeout:g} s.")


class Refusal(Response):
    """Says why a request is not answered, and reads on for a while, so that the client gets it."""

    def __init__(self, refused: Refused) -> None:
        """Write status and text."""
        headers = {"retry-after": "1"} if refused.status == 503 else {}
        headers["x-content-type-options"] = "nosniff"
        super().__init__(to_json(str(refused)), refused.status, headers, "application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        is_read = scope.get("is_read", False)
        headers = [*self.raw_headers, *([] if is_read else [(b"connection", b"close")])]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": not is_read})
        if not is_read:
            await _drain(receive)
            await send({"type": "http.response.body", "body": b""})


async def _drain(receive: Receive) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while (message := await receive())["type"] == "http.request":
                if not message.get("more_body", False):
                    return
