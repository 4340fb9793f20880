"""Requests to the API of open-source Kubeflow Pipelines, and a sentence for each that fails."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from components.contract.errors import ConfigurationError, ServiceError
from pipeline_def.kubeflow.client.connection import TOKEN_VARIABLE, Connection, Token
from pipeline_def.kubeflow.service_errors import Caller, Unreachable, one_line

_PASS_TOKEN = f"pass a token with --token-file or in {TOKEN_VARIABLE}"

# The upload service answers 400 or 500 where the others would say 401, 403, 409 or 400, and nothing
# but its text, here without spaces, tells them apart.
_UPLOAD_STATUS = {
    "unauthenticated": 401,
    "permissiondenied": 403,
    "notauthorized": 403,
    "alreadyexist": 409,
    "invalidinputerror": 400,
}

# What OpenSSL calls an answer that is not TLS, and a file without a certificate.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
_NO_PEM = ("NO_CERTIFICATE_OR_CRL_FOUND", "PEM_LIB")


class Api:
    """The SDK's generated client of the API, with a time limit, no retries and checked answers.

    `kfp.Client` is built on the same generated client, but its methods print links, give requests
    no time limit, read a namespace from ~/.config/kfp, and take a login page for an answer.
    """

    def __init__(self, connection: Connection) -> None:
        """Prepare the client; nothing is sent yet."""
        import kfp_server_api

        self.connection = connection
        self.address = connection.address()
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

        `action` says in an error message what was wanted, as in "could not <action>". Bodies go by
        position: releases of the client name them differently.

        Raises:
            Unreachable: The API gave no proper answer this time.
            ServiceError: The API refused, or what answered is not the API.
            ConfigurationError: The endpoint, the CA certificate or the token cannot be used.
        """
        bound = getattr(getattr(self._package, service)(self._client), method)
        value = _json(self._send(functools.partial(bound, *args, **kwargs), action)[0])
        if not isinstance(value, dict):
            raise self._not_the_api()
        return value

    def text(self, path: str, action: str, query: Mapping[str, str] | None = None) -> str:
        """Return the text that a path beside the API answers with, as logs do.

        Raises:
            ServiceError: as in `call`; also for a page of the interface, and for an error that is
                reported, as that of a log that is streamed, under the status 200.
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
            raise self._not_the_api()
        if text.startswith('{"error_message"'):
            message = one_line(_message(text, {}), self.connection.token().text)
            raise ServiceError(f"{self.address} could not {action} ({message}).")
        return text

    def _send(self, request: Callable[..., Any], action: str) -> tuple[str, str]:
        """Return text and type of an answer."""
        token = self.connection.token()
        self._client.configuration.api_key = {"authorization": token.text} if token.text else {}
        # A pair, because the generated client takes a lone float for no limit at all.
        limits = (self.connection.timeout, self.connection.timeout)
        try:
            answer = request(_preload_content=False, _request_timeout=limits)
            text = answer.data.decode("utf-8", "replace")
        except Exception as error:
            raise self._error(error, token, action) from None
        return text, answer.headers.get("Content-Type", "")

    def _not_the_api(self) -> ServiceError:
        return ServiceError(
            f"{self.address} answers with a web page or other text instead of the JSON of the "
            "Kubeflow Pipelines API, as a login page does: check --endpoint, and "
            f"{_PASS_TOKEN}."
        )

    def _error(self, error: Exception, token: Token, action: str) -> Exception:
        import urllib3

        kind = self._package.ApiException
        # For an error without a body, such as one of TLS, the client raises another one.
        refused = error if isinstance(error, kind) else error.__context__
        if isinstance(refused, kind) and refused.status:
            return self._refusal(refused, token, action)
        if isinstance(refused, kind) and refused.__context__:
            return _tls(refused.__context__.args[0], self.address)
        if isinstance(error, urllib3.exceptions.HTTPError | OSError | ValueError):
            return _no_answer(error, self.address, self.connection.timeout)
        return error

    def _refusal(self, error: Any, token: Token, action: str) -> ServiceError:
        """Return the error for a status other than 2xx."""
        status, headers = int(error.status), error.headers or {}
        message = one_line(_message(error.body, headers), token.text)
        if 300 <= status < 400:
            return _redirected(headers.get("Location", ""), self.address)
        # The gateway has one status and one code for an unknown path and for a missing object.
        if status == 404 and message in ("", "Not Found"):
            return ServiceError(
                f"{self.address} has no Kubeflow Pipelines v2 API (404): check --endpoint; it is "
                "the address of the pipelines' own pages, behind a dashboard with /pipeline at its "
                "end."
            )
        if status in (400, 500):
            text = message.lower().replace(" ", "")
            status = next((s for word, s in _UPLOAD_STATUS.items() if word in text), status)
        # Only the text says that this is what a request lacks.
        if self.connection.namespace is None and "namespace" in message:
            message += "; pass --namespace, as the cluster has several users"
        return self._caller(token).refusal(status, action, message)

    def _caller(self, token: Token) -> Caller:
        if not token.text:
            return Caller(self.address, "a caller without a token", _PASS_TOKEN, _PASS_TOKEN)
        space = self.connection.namespace
        where = f" in the namespace {space}" if space else ""
        return Caller(
            self.address,
            f"the token from {token.source}",
            "pass another one",
            f"check --namespace and the caller's rights{where}",
        )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _message(body: bytes | str | None, headers: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    value = _json(text)
    if isinstance(value, dict):
        # `error_message` is the upload service's, the others are the gRPC gateway's.
        return str(value.get("error_message") or value.get("message") or value.get("error") or "")
    return "" if "html" in headers.get("Content-Type", "") else text


def _redirected(location: str, address: str) -> ServiceError:
    target = urlsplit(location)
    # Not the query of the target, in which login pages keep what nobody else should read.
    host = f"{target.scheme}://{target.hostname}" if target.hostname else ""
    return ServiceError(
        f"{address} sends the request on to {host or target.path or 'elsewhere'} instead of "
        f"answering, as a login page does: check --endpoint, and {_PASS_TOKEN}."
    )


def _no_answer(error: Exception, address: str, limit: float) -> Unreachable:
    """Return the error for a request without an answer; `limit` is in seconds."""
    from urllib3 import exceptions

    # To urllib3 a connection that is refused is a time limit as well.
    late = isinstance(error, exceptions.TimeoutError | TimeoutError)
    if late and not isinstance(error, exceptions.NewConnectionError):
        return Unreachable(
            f"{address} did not answer within {limit:g} s: check --endpoint and the network, or "
            "allow more seconds."
        )
    cause: Any = error.__cause__ or error.__context__ or error
    reason = getattr(cause, "strerror", None) or str(cause)
    return Unreachable(
        f"No API server can be reached at {address} ({one_line(reason).lower()}): check "
        "--endpoint, and that the port forward or the gateway runs."
    )


def _tls(error: Any, address: str) -> ServiceError | ConfigurationError:
    """Return the error for a connection that failed in TLS."""
    reason = getattr(error, "reason", "")
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServiceError(
            f"The TLS certificate of {address} cannot be verified ({one_line(error.verify_message)}"
            "): pass the certificate of its authority with --ca-cert, and use the host name that "
            "it is for."
        )
    if reason in _NO_TLS:
        return ConfigurationError(f"{address} does not speak TLS: is its address http:// instead?")
    if reason in _NO_PEM:
        return ConfigurationError("The file of --ca-cert holds no PEM certificate.")
    return Unreachable(f"TLS to {address} failed ({one_line(str(error))}).")
