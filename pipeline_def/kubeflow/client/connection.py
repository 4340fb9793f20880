"""Where the API of open-source Kubeflow Pipelines is, and the token of who asks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from components.contract.errors import ConfigurationError

TOKEN_VARIABLE = "KFP_TOKEN"
# Where the SDK looks for the token that Kubernetes projects into a pod, and its variable for it.
_POD_TOKEN_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
_POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"


@dataclass(frozen=True)
class Token:
    """A bearer token, and in words where it came from; the text stays out of every message."""

    text: str | None = None
    source: str = ""


@dataclass(frozen=True)
class Connection:
    """Where the API is and who asks; `timeout` is in seconds and holds for one request.

    Raises:
        ConfigurationError: A value cannot be used.
    """

    endpoint: str
    namespace: str | None = None
    token_file: str | None = None
    ca_cert: str | None = None
    timeout: float = 30.0

    def __post_init__(self) -> None:
        """Check every value."""
        self.address()
        if self.ca_cert and not os.path.isfile(self.ca_cert):
            raise ConfigurationError(f"--ca-cert is {self.ca_cert}: there is no such file.")
        if self.timeout <= 0:
            raise ConfigurationError(
                f"The request timeout is {self.timeout:g} s: it must be more than 0."
            )

    def address(self) -> str:
        """Return the endpoint without what the browser's address bar adds to it."""
        bare = self.endpoint.split("#")[0].rstrip("/")
        try:
            parts = urlsplit(bare)
            host, _port = parts.hostname, parts.port
        except ValueError:
            raise ConfigurationError("--endpoint is not a URL: check its host and port.") from None
        if "@" in bare or parts.query:
            raise ConfigurationError(
                "--endpoint must not hold a password or a query: "
                f"give a token in a file (--token-file) or in {TOKEN_VARIABLE}."
            )
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigurationError(
                f"--endpoint is {bare}: it needs a URL, such as http://localhost:8080."
            )
        # The dashboard shows the pipelines' pages in a frame under /_/; the API is not there.
        return bare.replace("/_/pipeline", "/pipeline")

    def token(self) -> Token:
        """Return the token of the file, of `KFP_TOKEN`, or of the pod, in this order; or none.

        A projected token is renewed by Kubernetes, so it is read again for every request.

        Raises:
            ConfigurationError: The file cannot be read, or what it holds is not a token.
        """
        if self.token_file:
            return _token_of(self.token_file)
        if variable := os.environ.get(TOKEN_VARIABLE):
            return _checked(variable, f"the variable {TOKEN_VARIABLE}")
        path = os.environ.get(_POD_TOKEN_VARIABLE) or _POD_TOKEN
        return _token_of(path) if os.path.isfile(path) else Token()


def _token_of(path: str) -> Token:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1 << 16)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigurationError(f"The token file {path} cannot be read: {reason}.") from None
    return _checked(text, path)


def _checked(text: str, source: str) -> Token:
    text = text.strip()
    # A line break in a header makes http.client raise an error that quotes the header.
    if not text or not text.isascii() or any(c.isspace() or not c.isprintable() for c in text):
        raise ConfigurationError(
            f"There is no token in {source}: it needs one word of ASCII characters."
        )
    return Token(text, source)
