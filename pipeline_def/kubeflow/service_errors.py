"""What a failed request to a cluster means for the user: one sentence, whichever cluster it is."""

from __future__ import annotations

from dataclasses import dataclass

from components.contract.errors import ServiceError

_LONGEST = 500


class Unreachable(ServiceError):
    """The service gave no proper answer this time; asking again may help."""


def one_line(text: str, secret: str | None = None) -> str:
    """Return the text as part of a sentence: no line breaks, no secret, at most 500 characters."""
    if secret:
        text = text.replace(secret, "***")
    line = " ".join(text.split()).rstrip(" .")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


@dataclass(frozen=True)
class Caller:
    """Who asks whom, in words."""

    service: str
    """Who is asked, such as http://localhost:8080."""
    who: str
    """Who asks, such as a caller without a token."""
    sign_in: str
    """What to do when the service does not know who asks."""
    rights: str
    """What to do when the caller may not do this."""

    def refusal(self, status: int, action: str, message: str) -> ServiceError:
        """Return the error for an HTTP status; `action` is as in "could not <action>"."""
        said = f"{status}: {message}" if message else f"{status}"
        if status == 401:
            return ServiceError(
                f"{self.service} does not accept {self.who} ({said}): {self.sign_in}."
            )
        if status == 403:
            return ServiceError(
                f"{self.service} does not let {self.who} {action} ({said}): {self.rights}."
            )
        if status >= 500 or status == 429:
            return Unreachable(f"{self.service} could not {action} ({said}).")
        return ServiceError(f"{self.service} refused to {action} ({said}).")
