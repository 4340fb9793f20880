"""The web page: static files, read once at startup, and their security headers."""

from __future__ import annotations

import functools
import json
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline_def.local.server.options import ServerOptions

# No external resources, no inline scripts, no framing by other pages.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; media-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
# The colors are those of the report.
_STYLES = (
    ("components.report.page", "tokens.css"),
    ("pipeline_def.local.server", "style.css"),
)


def page_routes(options: ServerOptions) -> list[Route]:
    """Return the routes of the page and its resources."""
    files = {
        "/": (_read("pipeline_def.local.server", "page.html"), "text/html"),
        "/style.css": ("\n".join(_read(*place) for place in _STYLES), "text/css"),
        "/page.js": (_read("pipeline_def.local.server", "page.js"), "text/javascript"),
        "/settings.json": (_write_settings(options), "application/json"),
    }
    return [
        Route(path, functools.partial(_answer, text, kind)) for path, (text, kind) in files.items()
    ]


def _read(package: str, name: str) -> str:
    return (resources.files(package) / "templates" / name).read_text(encoding="utf-8")


def _write_settings(options: ServerOptions) -> str:
    # Base64 encodes three bytes in four.
    most = int(options.max_request_bytes * 0.74)
    return json.dumps({"model": f"/v1/models/{options.name}", "most_bytes": most})


async def _answer(text: str, kind: str, request: Request) -> Response:
    return Response(text, 200, _HEADERS, kind)
