"""Send requests to the API of open-source Kubeflow Pipelines, with one sentence for each error."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.client.connection import TOKEN_VARIABLE, Connection, Token
from pipeline_def.kubeflow.service_errors import Caller, Unreachable, one_line

_PASS_TOKEN = f"pass a token in --token-file or {TOKEN_VARIABLE}"


class Api:
    """The SDK's generated client (`kfp_server_api`), with time limits and checked responses.

    `kfp.Client` wraps the same client, but prints links, sets no time limits, reads a namespace
    from ~/.config/kfp, and accepts a login page as a response.
    """

    def __init__(self, connection: Connection) -> None:
        """Prepare the client without sending anything."""
        import kfp_server_api

        self.connection = connection
        self.address = connection.address()
        configuration = kfp_server_api.Configuration(host=self.address)
        configuration.ssl_ca_cert = connection.ca_cert
        # Retries would multiply the time limit, and redirects lead to login pages.
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
        """Call a method of a service, such as RunServiceApi, and return the JSON object it returns.

        `action` completes "could not <action>" in error messages. Bodies go by position, as
        releases of the generated client name them differently.

        Raises:
            Unreachable: The API gave no valid response; a retry may succeed.
            ServiceError: The API refused, or something else responded.
        """
        bound = getattr(getattr(self._package, service)(self._client), method)
        value = _parse(self._send(functools.partial(bound, *args, **kwargs), action)[0])
        if not isinstance(value, dict):
            raise self._not_the_api("it returned a web page or other text")
        return value

    def text(self, path: str, action: str, query: Mapping[str, str] | None = None) -> str:
        """Return the text at a path next to the API, such as a log.

        Raises:
            ServiceError: As for `call`; also for a page of the interface, and for the error that
                the API server reports with status 200 when it streams a log.
        """
        request = functools.partial(
            self._client.call_api,
            path,
            "GET",
            query_params=list((query or {}).items()),
            auth_settings=["Bearer"],
        )
        text, kind = self._send(request, action)
        if "html" in kind:
            raise self._not_the_api("it returned a web page")
        if text.startswith('{"error_message"'):
            message = one_line(_message(text, ""), self.connection.token().text)
            raise ServiceError(f"{self.address} could not {action} ({message}).")
        return text

    def _send(self, request: Callable[..., Any], action: str) -> tuple[str, str]:
        """Return text and content type of the response."""
        token = self.connection.token()
        self._client.configuration.api_key = {"authorization": token.text} if token.text else {}
        # The generated client ignores a time limit that is a single float.
        limits = (self.connection.timeout, self.connection.timeout)
        try:
            response = request(_preload_content=False, _request_timeout=limits)
            text = response.data.decode("utf-8", "replace")
        except Exception as error:
            raise self._error(error, token, action) from None
        return text, response.headers.get("Content-Type", "")

    def _error(self, error: Exception, token: Token, action: str) -> Exception:
        import urllib3

        kind = self._package.ApiException
        # When an error has no body, as with TLS, the client fails with another one on top.
        api_error = error if isinstance(error, kind) else error.__context__
        if isinstance(api_error, kind) and api_error.status:
            return self._refusal(api_error, token, action)
        if isinstance(api_error, kind) and api_error.__context__:
            error = api_error.__context__
        if isinstance(error, urllib3.exceptions.HTTPError | OSError | ValueError):
            return self._no_response(error)
        return error

    def _refusal(self, error: Any, token: Token, action: str) -> ServiceError:
        """Return the error for a status other than 2xx."""
        status, headers = int(error.status), error.headers or {}
        message = one_line(_message(error.body, headers.get("Content-Type", "")), token.text)
        if 300 <= status < 400:
            # The query of the target may contain secrets.
            host = urlsplit(headers.get("Location", "")).hostname
            return self._not_the_api(f"it redirects to {host or 'another page'}")
        # The gateway answers an unknown path and a missing object with the same status and code.
        if status == 404 and message in ("", "Not Found"):
            return self._not_the_api("404")
        # Only the text says that a request lacks the namespace.
        if self.connection.namespace is None and "namespace" in message:
            message += "; pass --namespace, as the cluster has several users"
        return self._caller(token).refusal(status, action, message)

    def _caller(self, token: Token) -> Caller:
        if not token.text:
            return Caller(self.address, "a caller without a token", _PASS_TOKEN, _PASS_TOKEN)
        namespace = self.connection.namespace
        where = f" in the namespace {namespace}" if namespace else ""
        rights = f"check --namespace and the caller's rights{where}"
        return Caller(self.address, f"the token from {token.source}", "pass another one", rights)

    def _not_the_api(self, found: str) -> ServiceError:
        return ServiceError(
            f"{self.address} is not the Kubeflow Pipelines v2 API ({found}): check --endpoint, and "
            f"if it is a login page, {_PASS_TOKEN}. Behind a dashboard, the endpoint ends in "
            "/pipeline."
        )

    def _no_response(self, error: Any) -> Unreachable:
        from urllib3 import exceptions

        # To urllib3, a refused connection is a timeout too.
        late = isinstance(error, exceptions.TimeoutError | TimeoutError)
        if late and not isinstance(error, exceptions.NewConnectionError):
            return Unreachable(
                f"{self.address} did not answer within {self.connection.timeout:g} s: check "
                "--endpoint and the network, or raise --timeout."
            )
        cause: Any = error.__cause__ or error.__context__ or error
        if isinstance(error, exceptions.SSLError):
            cause = error.args[0]
        if isinstance(cause, ssl.SSLError):
            reason = getattr(cause, "verify_message", "") or cause.reason or str(cause)
            return Unreachable(
                f"The TLS connection to {self.address} failed ({one_line(reason)}): pass the "
                "certificate of its authority as PEM in --ca-cert, use the certificate's host "
                "name, or http:// if the server has no TLS."
            )
        reason = getattr(cause, "strerror", None) or str(cause)
        return Unreachable(
            f"Cannot reach {self.address} ({one_line(reason).lower()}): check --endpoint, and that "
            "the port forward or the gateway is running."
        )


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _message(body: bytes | str | None, content_type: str) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    value = _parse(text)
    if isinstance(value, dict):
        # The upload service has `error_message`, the gRPC gateway the others.
        return str(value.get("error_message") or value.get("message") or value.get("error") or "")
    return "" if "html" in content_type else text
