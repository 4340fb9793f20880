"""One-sentence errors for failed requests to a cluster."""

import json
from urllib.parse import urlsplit

from components.contract.errors import ServiceError

_MAX_LENGTH = 500


class Unreachable(ServiceError):
    """The service gave no valid response; a retry may succeed."""


def is_http_url(text: str) -> bool:
    """Return whether a text is the URL of a server."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def one_line(text: str, secret: str | None = None) -> str:
    """Return the text on one line, without the secret and with at most 500 characters."""
    if secret:
        text = text.replace(secret, "***")
    line = " ".join(text.split()).rstrip(" .")
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 3] + "..."


def read_message(body: bytes | str | None) -> str:
    """Return the message in the JSON body of an error response; any other body as it is."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    try:
        content = json.loads(text)
        # Kubernetes and the gRPC gateway have `message`, KFP's upload service the first.
        keys = ("error_message", "message", "error")
        return str(next(filter(None, map(content.get, keys)), text))
    except (ValueError, AttributeError):
        return text


def refusal(service: str, status: int, action: str, message: str, *, rights: str) -> ServiceError:
    """Return the error for an HTTP status.

    Args:
        service: Such as http://localhost:8080.
        status: HTTP status.
        action: What was asked for; completes "could not <action>".
        message: What the service said, on one line.
        rights: What to do about a status 401 or 403.
    """
    kind = Unreachable if status >= 500 or status == 429 else ServiceError
    reason = f"{status}: {message}" if message else f"{status}"
    advice = f": {rights}" if status in (401, 403) else ""
    return kind(f"{service} could not {action} ({reason}){advice}.")
