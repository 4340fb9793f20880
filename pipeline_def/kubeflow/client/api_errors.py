"""What a failed request to the Kubeflow Pipelines API means for the user, in one sentence."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from components.contract.errors import UserError

if TYPE_CHECKING:
    from pipeline_def.kubeflow.client.api_connection import Connection, Token

_LONGEST = 500
# The upload service answers 400 or 500 where the others would say 401, 403, 409 or 400.
_TEXT_STATUS = (
    (r"unauthenticated", 401),
    (r"permissiondenied|permission denied|not authorized", 403),
    (r"already exist", 409),
    (r"invalid ?input ?error", 400),
)
_WANTS_TOKEN = "pass a token with --token-file or in KFP_TOKEN"


class Unreachable(UserError):
    """The API gave no proper answer this time; asking again may help."""


def one_line(text: str, secret: str | None = None) -> str:
    """Return the text as part of a sentence: no line breaks, no secret, at most 500 characters."""
    if secret:
        text = text.replace(secret, "***")
    line = " ".join(text.split()).rstrip(" .")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def not_the_api(address: str) -> UserError:
    """Return what to say of an answer that is no JSON object: mostly a login page."""
    return UserError(
        f"{address} answers with a web page or other text instead of the JSON of the Kubeflow "
        f"Pipelines API, as a login page does: check --endpoint, and {_WANTS_TOKEN}."
    )


def failure(error: Exception, address: str, limit: float) -> UserError:
    """Return the sentence for a request that got no answer; `limit` is in seconds."""
    from urllib3 import exceptions

    host = urlsplit(address).hostname
    if isinstance(error, exceptions.NameResolutionError):
        return Unreachable(f"The host name {host} is not known here: check --endpoint.")
    if isinstance(error, exceptions.NewConnectionError):
        return Unreachable(
            f"Nothing can be reached at {address} ({_reason(error)}): check --endpoint, and that "
            "the port forward or the gateway runs."
        )
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return Unreachable(
            f"{address} did not answer within {limit:g} s: check --endpoint and the network, or "
            "allow more seconds."
        )
    if isinstance(error, exceptions.LocationValueError | UnicodeError):
        return UserError(f"--endpoint is {address}: that is not a URL that can be asked.")
    return Unreachable(
        f"The connection to {address} broke ({_reason(error)}): check that an API server, "
        "not some other service, listens there."
    )


def _reason(error: Exception) -> str:
    last = error.args[-1] if error.args else None
    text = str(error.__cause__ or (last if isinstance(last, Exception) else error))
    return one_line(re.sub(r"^\[Errno -?\d+\] ", "", text)).lower()


def refusal(
    error: Any, connection: Connection, address: str, token: Token, action: str
) -> UserError:
    """Return the sentence for an `ApiException`: a status other than 2xx, or a TLS error."""
    if not error.status:
        return _tls(str(error.reason), address)
    message = one_line(_message(error.body), token.text)
    status = int(error.status)
    if status in (400, 500):
        status = next((s for p, s in _TEXT_STATUS if re.search(p, message.lower())), status)
    said = f": {message}" if message else ""
    if 300 <= status < 400:
        return _redirected(error, address)
    if status == 401:
        return _unknown_caller(address, token, said)
    if status == 403:
        return _not_allowed(connection, address, token, action, said)
    if status == 404 and message in ("", "Not Found"):
        return UserError(
            f"{address} has no Kubeflow Pipelines v2 API (404): check --endpoint; it is the "
            "address of the pipelines' own pages, behind a dashboard with /pipeline at its end."
        )
    if status >= 500 or status == 429:
        return Unreachable(f"{address} could not {action} (status {error.status}{said}).")
    hint = ""
    if connection.namespace is None and "namespace" in message.lower():
        hint = "; pass --namespace, as the cluster has several users"
    return UserError(f"{address} refused to {action} (status {error.status}{said}){hint}.")


def _unknown_caller(address: str, token: Token, said: str) -> UserError:
    if token.text:
        return UserError(f"{address} did not accept the token from {token.source} (401{said}).")
    return UserError(f"{address} asks who you are (401): {_WANTS_TOKEN}.")


def _not_allowed(
    connection: Connection, address: str, token: Token, action: str, said: str
) -> UserError:
    who = f"The token from {token.source}" if token.text else "A caller without a token"
    where = f" in the namespace {connection.namespace}" if connection.namespace else ""
    advice = "check --namespace and the caller's rights" if token.text else _WANTS_TOKEN
    return UserError(f"{who} may not {action} at {address}{where} (403{said}): {advice}.")


def _redirected(error: Any, address: str) -> UserError:
    target = urlsplit((error.headers or {}).get("Location", ""))
    # Not the query of the target, in which login pages keep what nobody else should read.
    place = (
        f"{target.scheme}://{target.hostname}" if target.hostname else target.path or "elsewhere"
    )
    return UserError(
        f"{address} sends the request on to {place} instead of answering, as a login page does: "
        f"check --endpoint, and {_WANTS_TOKEN}."
    )


def _tls(reason: str, address: str) -> UserError:
    if "CERTIFICATE_VERIFY_FAILED" in reason or "match" in reason:
        found = re.search(
            r"(?:certificate verify failed: |CertificateError\()(.*?)(?: \(_ssl|\)|$)", reason
        )
        why = one_line(found.group(1)) if found else "not trusted"
        return UserError(
            f"The TLS certificate of {address} cannot be verified ({why}): pass the certificate of "
            "its authority with --ca-cert, and use the host name that it is for."
        )
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return UserError(f"{address} does not speak TLS: is its address http:// instead?")
    if "NO_CERTIFICATE_OR_CRL_FOUND" in reason or "PEM" in reason:
        return UserError("The file of --ca-cert holds no PEM certificate.")
    return Unreachable(f"TLS to {address} failed ({one_line(reason)}).")


def _message(body: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        value = json.loads(text)
    except ValueError:
        return "" if "<" in text else text
    if not isinstance(value, dict):
        return text
    # `error_message` is the upload service's, the others are the gRPC gateway's.
    return str(value.get("error_message") or value.get("message") or value.get("error") or "")
