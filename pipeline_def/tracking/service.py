"""Requests to the services that runs report to; each failure is one sentence without secrets."""

import base64
import json
import os
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import quote

from components.contract.errors import ServiceError
from pipeline_def.service_errors import Unreachable, one_line, read_message, refusal

# To connect, and between two packets.
_TIMEOUT_SECONDS = (5.0, 20.0)


class Refused(ServiceError):
    """A service refused a request; `code` is its own name of the reason, or the HTTP status."""

    def __init__(self, message: str, code: str) -> None:
        """Take the sentence for the user, and the code."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Service:
    """A service with a REST API."""

    url: str
    variable: str
    """Environment variable with a token, or with USER:PASSWORD; it may be missing."""

    def get(self, path: str, action: str, **query: str) -> dict[str, Any]:
        """Request JSON; `action` completes "could not <action>", and errors are as of `send`."""
        return self.send("GET", path, action, params=query)

    def post(self, path: str, action: str, body: Any) -> dict[str, Any]:
        """Post JSON and return the JSON of the response."""
        return self.send("POST", path, action, json=body)

    def put_file(self, path: str, file: str, action: str) -> None:
        """Upload a file."""
        with open(file, "rb") as data:
            # An empty file would be sent in chunks, which some servers refuse.
            self.put(path, data if os.path.getsize(file) else b"", action)

    def put(self, path: str, data: bytes | IO[bytes], action: str) -> None:
        """Upload bytes, or a file that is open."""
        self.send("PUT", quote(path), action, data=data)

    def send(self, method: str, path: str, action: str, **content: Any) -> dict[str, Any]:
        """Send a request; return the JSON object of the response, {} if it is empty.

        Raises:
            Unreachable: there was no valid response; a retry may succeed.
            Refused: the service refused the request.
            ServiceError: something else responded, or the token cannot be sent.
        """
        import requests

        credentials = self._credentials()
        secret = credentials.partition(" ")[2]
        try:
            # A function, as requests would replace a header by what ~/.netrc has.
            response = requests.request(
                method,
                f"{self.url}/{path}",
                timeout=_TIMEOUT_SECONDS,
                allow_redirects=False,
                auth=lambda request: _authorize(request, credentials),
                **content,
            )
            text = response.text
        except (requests.RequestException, OSError) as error:
            reason = one_line(str(_find_cause(error)), secret).rpartition(": ")[2]
            raise Unreachable(f"{self.url} could not {action} ({reason}).") from None
        status, html = response.status_code, "html" in response.headers.get("Content-Type", "")
        if 300 <= status < 400 or (status < 300 and html):
            found = f"it redirected, {status}" if status >= 300 else "it returned a web page"
            raise ServiceError(f"{self.url} could not {action} ({found}): check the URL.")
        if status >= 300:
            message = "" if html else one_line(read_message(self._redact(text)), secret)
            rights = f"check the token in the environment variable {self.variable}"
            found_error = refusal(self.url, status, action, message, rights=rights)
            if isinstance(found_error, Unreachable):
                raise found_error
            raise Refused(f"{found_error}", _code(text) or str(status))
        try:
            found_json = json.loads(text or "{}")
        except ValueError:
            # An acknowledgment, such as that of a file or an event.
            found_json = {}
        return found_json if isinstance(found_json, dict) else {}

    def _credentials(self) -> str:
        """Return the header `Authorization`, "" without a token."""
        token = os.environ.get(self.variable, "").strip()
        if not token:
            return ""
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise ServiceError(
                f"The environment variable {self.variable} has no valid token: it must be one word "
                "of ASCII characters."
            )
        if ":" in token:
            return f"Basic {base64.b64encode(token.encode()).decode()}"
        return f"Bearer {token}"

    def _redact(self, text: str) -> str:
        """Remove the token from what a server may repeat."""
        token = os.environ.get(self.variable, "").strip()
        for secret in {token, token.partition(":")[2]} - {""}:
            text = text.replace(secret, "***")
        return text


def _authorize(request: Any, credentials: str) -> Any:
    if credentials:
        request.headers["Authorization"] = credentials
    return request


def _find_cause(error: BaseException) -> BaseException:
    """Return the innermost of the errors that a library has wrapped in each other."""
    inner = (getattr(error, "reason", None), *error.args)
    return next((_find_cause(one) for one in inner[::-1] if isinstance(one, Exception)), error)


def _code(text: str) -> str:
    try:
        return str(json.loads(text).get("error_code", ""))
    except (ValueError, AttributeError):
        return ""
