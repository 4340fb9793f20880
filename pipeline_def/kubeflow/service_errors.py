"""One-sentence errors for failed requests to a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from components.contract.errors import ServiceError

_MAX_LENGTH = 500


class Unreachable(ServiceError):
    """The service gave no valid response; a retry may succeed."""


def one_line(text: str, secret: str | None = None) -> str:
    """Return the text on one line, without the secret and with at most 500 characters."""
    if secret:
        text = text.replace(secret, "***")
    line = " ".join(text.split()).rstrip(" .")
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 3] + "..."


@dataclass(frozen=True)
class Caller:
    """A caller and the service it calls, as error messages name them."""

    service: str
    """Such as http://localhost:8080."""
    who: str
    """Such as "a caller without a token"."""
    sign_in: str
    """What to do about a status 401."""
    rights: str
    """What to do about a status 403."""

    def refusal(self, status: int, action: str, message: str) -> ServiceError:
        """Return the error for an HTTP status; `action` completes "could not <action>"."""
        reason = f"{status}: {message}" if message else f"{status}"
        if status == 401:
            return ServiceError(
                f"{self.service} does not accept {self.who} ({reason}): {self.sign_in}."
            )
        if status == 403:
            return ServiceError(
                f"{self.service} does not let {self.who} {action} ({reason}): {self.rights}."
            )
        if status >= 500 or status == 429:
            return Unreachable(f"{self.service} could not {action} ({reason}).")
        return ServiceError(f"{self.service} refused to {action} ({reason}).")
