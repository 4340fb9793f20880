"""The pages of the servers on this machine: their files and headers."""

import functools
from collections.abc import Mapping
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from components.report import page as report_page

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
            _read(report_page.__name__, "tokens.css") + _read(package, "style.css"),
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
