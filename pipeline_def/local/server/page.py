"""What the pages of all servers on this machine share: their files, headers and errors."""

import functools
import logging
from collections.abc import Mapping
from importlib import resources
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline_def.local.server.limits import ErrorResponse
from pipeline_def.local.server.rest import RequestError

_LOGGER = logging.getLogger(__name__)

# No external resources, no inline scripts, no framing by other pages.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; media-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def make_page_routes(
    package: str, texts: Mapping[str, tuple[str, str]] | None = None
) -> list[Route]:
    """Return the routes of a page, whose files are read once.

    Args:
        package: has `page.html`, `page.js` and `style.css` in its folder of templates.
        texts: further paths → text and media type.
    """
    files = {
        "/": (_read(package, "page.html"), "text/html"),
        # The colors are those of the report.
        "/style.css": (
            _read("components.report.page", "tokens.css") + _read(package, "style.css"),
            "text/css",
        ),
        "/page.js": (_read(package, "page.js"), "text/javascript"),
        **(texts or {}),
    }
    return [
        Route(path, functools.partial(_answer, text, kind)) for path, (text, kind) in files.items()
    ]


def _read(package: str, name: str) -> str:
    return (resources.files(package) / "templates" / name).read_text(encoding="utf-8")


async def _answer(text: str, kind: str, request: Request) -> Response:
    return Response(text, 200, HEADERS, kind)


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
