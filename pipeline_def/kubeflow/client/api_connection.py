"""The API of open-source Kubeflow Pipelines: its address, its token, one call, one sentence."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from components.contract.errors import UserError
from pipeline_def.kubeflow.client.api_errors import failure, not_the_api, refusal

TOKEN_VARIABLE = "KFP_TOKEN"
# Where the SDK looks for the token that Kubernetes projects into a pod, and its variable for it.
_POD_TOKEN_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
_POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"


@dataclass(frozen=True)
class Connection:
    """Where the API is and who asks; `timeout` is in seconds and holds for one request."""

    endpoint: str
    namespace: str | None = None
    token_file: str | None = None
    ca_cert: str | None = None
    timeout: float = 30.0

    def address(self) -> str:
        """Return the endpoint without what the browser's address bar adds to it.

        Raises:
            UserError: It is no http(s) URL, or it holds a password or a query.
        """
        bare = self.endpoint.split("#")[0].rstrip("/")
        try:
            parts = urlsplit(bare)
            host, _port = parts.hostname, parts.port
        except ValueError:
            raise UserError("--endpoint is not a URL: check its host and port.") from None
        if "@" in bare or parts.query:
            raise UserError(
                "--endpoint must not hold a password or a query: "
                f"give a token in a file (--token-file) or in {TOKEN_VARIABLE}."
            )
        if parts.scheme not in ("http", "https") or not host:
            raise UserError(f"--endpoint is {bare}: it needs a URL, such as http://localhost:8080.")
        # The dashboard shows the pipelines' pages in a frame under /_/; the API is not there.
        return bare.replace("/_/pipeline", "/pipeline")


@dataclass(frozen=True)
class Token:
    """A bearer token, and in words where it came from; the text stays out of every message."""

    text: str | None
    source: str


def read_token(connection: Connection) -> Token:
    """Return the token of the file, of `KFP_TOKEN`, or of the pod, in this order; or none.

    A projected token is renewed by Kubernetes, so it is read again for every request.

    Raises:
        UserError: The file cannot be read, or what it holds is no token.
    """
    variable = os.environ.get(TOKEN_VARIABLE)
    if connection.token_file:
        return _token_of(connection.token_file)
    if variable:
        return _checked(variable, f"the variable {TOKEN_VARIABLE}")
    path = os.environ.get(_POD_TOKEN_VARIABLE) or _POD_TOKEN
    return _token_of(path) if os.path.isfile(path) else Token(None, "")


def _token_of(path: str) -> Token:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1 << 16)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise UserError(f"The token file {path} cannot be read: {reason}.") from None
    return _checked(text, path)


def _checked(text: str, source: str) -> Token:
    text = text.strip()
    # A line break in a header makes http.client raise an error that quotes the header.
    if not text or not text.isascii() or any(c.isspace() or not c.isprintable() for c in text):
        raise UserError(f"There is no token in {source}: it needs one word of ASCII characters.")
    return Token(text, source)


class Api:
    """The SDK's generated client of the API, with a time limit, no retries and checked answers.

    `kfp.Client` is built on the same generated client, but its methods print links, give requests
    no time limit, read a namespace from ~/.config/kfp, and take a login page for an answer.
    """

    def __init__(self, connection: Connection) -> None:
        """Prepare the client; nothing is sent yet.

        Raises:
            UserError: The endpoint, the CA certificate or the token cannot be used.
        """
        import kfp_server_api

        self.connection = connection
        self.address = connection.address()
        if connection.ca_cert and not os.path.isfile(connection.ca_cert):
            raise UserError(f"--ca-cert is {connection.ca_cert}: there is no such file.")
        read_token(connection)
        configuration = kfp_server_api.Configuration(host=self.address)
        configuration.ssl_ca_cert = connection.ca_cert
        # Neither retries, which multiply the time limit, nor redirects, which lead to login pages.
        configuration.retries = False
        configuration.api_key_prefix = {"authorization": "Bearer"}
        self._package = kfp_server_api
        self._client = kfp_server_api.ApiClient(configuration)

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.rest_client.pool_manager.clear()
        self._client.close()

    def call(self, service: str, method: str, action: str, *args: Any, **kwargs: Any) -> Any:
        """Return the JSON object that a method of a service API answers with.

        `action` says in an error message what was wanted, as in "may not <action>".

        Raises:
            Unreachable: The API gave no proper answer this time.
            UserError: The API refused, or what answered is not the API.
        """
        import urllib3

        token = read_token(self.connection)
        self._client.configuration.api_key = {"authorization": token.text} if token.text else {}
        bound = getattr(getattr(self._package, service)(self._client), method)
        limit = self.connection.timeout
        if limit <= 0:
            raise UserError(f"The request timeout is {limit:g} s: it must be more than 0.")
        try:
            # A pair, because the generated client takes a lone float for no limit at all.
            answer = bound(*args, **kwargs, _preload_content=False, _request_timeout=(limit, limit))
            text = answer.data.decode("utf-8", "replace")
        except Exception as error:
            # For an error without a text body, such as one of TLS, the client raises another one.
            refused = error if hasattr(error, "status") else error.__context__
            if isinstance(refused, self._package.ApiException):
                sentence = refusal(refused, self.connection, self.address, token, action)
            elif isinstance(error, urllib3.exceptions.HTTPError | OSError | ValueError):
                sentence = failure(error, self.address, limit)
            else:
                raise
            raise sentence from None
        return self._object(text)

    def _object(self, text: str) -> Any:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise not_the_api(self.address)
        return value
