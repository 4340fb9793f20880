"""The address of the Kubeflow Pipelines API and the token that a caller sends."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from components.contract.configuration import require
from components.contract.errors import ConfigurationError

TOKEN_VARIABLE = "KFP_TOKEN"
# The SDK's variable for the token that Kubernetes projects into a pod, and its default.
_POD_TOKEN_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
_POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"


@dataclass(frozen=True)
class Connection:
    """Where the API is, and who calls it.

    Raises:
        ConfigurationError: A value cannot be used.
    """

    endpoint: str
    namespace: str | None = None
    token_file: str | None = None
    ca_cert: str | None = None
    timeout: float = 30.0
    """Seconds for one request."""

    def __post_init__(self) -> None:
        """Validate every value."""
        # Before the URL is quoted in any message.
        require(
            "@" not in self.endpoint and "?" not in self.address(),
            "--endpoint must not contain a password or a query: pass a token in --token-file or "
            f"{TOKEN_VARIABLE}.",
        )
        try:
            parts = urlsplit(self.address())
            valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            valid = False
        require(
            bool(valid),
            f"--endpoint is {self.endpoint}: it must be a URL such as http://localhost:8080.",
        )
        require(
            not self.ca_cert or os.path.isfile(self.ca_cert),
            f"--ca-cert is {self.ca_cert}: there is no such file.",
        )
        require(self.timeout > 0, f"--timeout is {self.timeout:g}: it must be above 0.")

    def address(self) -> str:
        """Return the endpoint without what the browser's address bar adds to it."""
        # The dashboard shows the pages of pipelines in a frame below /_/, where there is no API.
        bare = self.endpoint.partition("#")[0].rstrip("/")
        return bare.replace("/_/pipeline", "/pipeline")

    def token(self) -> str | None:
        """Read the token from the file, from `KFP_TOKEN`, or from the pod; there may be none.

        Kubernetes renews projected tokens, so each request reads it again.

        Raises:
            ConfigurationError: The file cannot be read or does not contain a token.
        """
        text, source = os.environ.get(TOKEN_VARIABLE), f"the variable {TOKEN_VARIABLE}"
        if self.token_file or not text:
            source = self.token_file or os.environ.get(_POD_TOKEN_VARIABLE) or _POD_TOKEN
            if not self.token_file and not os.path.isfile(source):
                return None
            try:
                with open(source, encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "not text"
                raise ConfigurationError(
                    f"Cannot read the token file {source}: {reason}."
                ) from None
        token = text.strip()
        # http.client would quote a header with a line break in its error message.
        require(
            token.isascii() and token.isprintable() and len(token.split()) == 1,
            f"There is no token in {source}: it must be one word of ASCII characters.",
        )
        return token
