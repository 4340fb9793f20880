"""Send requests to the API of open-source Kubeflow Pipelines; each error is one sentence."""

import functools
import json
import os
from collections.abc import Callable
from typing import Any

from components.contract.configuration import require
from components.contract.errors import ServiceError
from pipeline_def.config.yaml_file import read_text
from pipeline_def.service_errors import Unreachable, is_http_url, one_line, read_message, refusal

TOKEN_VARIABLE = "KFP_TOKEN"
# To connect, and to wait for bytes: the generated client ignores a single float.
_TIMEOUT_SECONDS = (30.0, 30.0)


class Api:
    """The SDK's generated client (`kfp_server_api`), with time limits and checked responses.

    `kfp.Client` wraps the same client, but prints links, sets no time limits, reads a namespace
    from ~/.config/kfp, and accepts a login page as a response.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        namespace: str | None = None,
        token_file: str | None = None,
        ca_cert: str | None = None,
    ) -> None:
        """Validate every value, and prepare the client without sending anything."""
        # The dashboard shows the pages of pipelines in a frame below /_/, where there is no API.
        self.address = endpoint.partition("#")[0].rstrip("/").replace("/_/pipeline", "/pipeline")
        # Before the URL is quoted in any message.
        require(
            "@" not in endpoint and "?" not in self.address,
            "--endpoint must not contain a password or a query: pass a token in --token-file or "
            f"{TOKEN_VARIABLE}.",
        )
        require(
            is_http_url(self.address),
            f"--endpoint is {endpoint}: it must be a URL such as http://localhost:8080.",
        )
        require(
            not ca_cert or os.path.isfile(ca_cert),
            f"--ca-cert is {ca_cert}: there is no such file.",
        )
        import kfp_server_api

        self.namespace, self._token_file = namespace, token_file
        configuration = kfp_server_api.Configuration(host=self.address)
        configuration.ssl_ca_cert = ca_cert
        # Retries would multiply the time limit, and redirects lead to login pages.
        configuration.retries = False
        configuration.api_key_prefix = {"authorization": "Bearer"}
        self._package = kfp_server_api
        self._client = kfp_server_api.ApiClient(configuration)

    def call(self, service: str, method: str, action: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a service, such as RunServiceApi, and return the JSON object it returns.

        `action` completes "could not <action>" in error messages. Bodies go by position, as
        releases of the generated client name them differently.

        Raises:
            Unreachable: The API gave no valid response; a retry may succeed.
            ServiceError: The API refused, or something else responded.
        """
        bound = getattr(getattr(self._package, service)(self._client), method)
        text, _ = self._send(functools.partial(bound, *args, **kwargs), action)
        try:
            response = json.loads(text)
        except ValueError:
            raise self._not_the_api("it returned a web page or other text") from None
        if not isinstance(response, dict):
            raise self._not_the_api("it returned a list or a single value")
        return response

    def create(self, key: str, *args: Any, **kwargs: Any) -> str:
        """Do as `call` does; return the ID `key` of what was created."""
        response = self.call(*args, **kwargs)
        if key not in response:
            raise self._not_the_api(f"it returned no {key}")
        return str(response[key])

    def text(self, path: str, action: str, **query: str) -> str:
        """Return the text at a path next to the API, such as a log; raise errors as `call` does."""
        request = functools.partial(
            self._client.call_api,
            path,
            "GET",
            query_params=list(query.items()),
            auth_settings=["Bearer"],
        )
        text, kind = self._send(request, action)
        if "html" in kind:
            raise self._not_the_api("it returned a web page")
        return text

    def _send(self, request: Callable[..., Any], action: str) -> tuple[str, str]:
        """Return text and content type of the response."""
        token = self._token()
        self._client.configuration.api_key = {"authorization": token} if token else {}
        try:
            response = request(_preload_content=False, _request_timeout=_TIMEOUT_SECONDS)
            text = response.data.decode("utf-8", "replace")
        except Exception as error:
            raise self._explain(error, token, action) from None
        return text, response.headers.get("Content-Type", "")

    def _token(self) -> str | None:
        """Read the token from the file or from `KFP_TOKEN`; there may be none.

        Kubernetes renews projected tokens, so each request reads it again.
        """
        text, source = os.environ.get(TOKEN_VARIABLE), f"the variable {TOKEN_VARIABLE}"
        if self._token_file:
            text, source = read_text(self._token_file), self._token_file
        elif not text:
            return None
        token = text.strip()
        # http.client would quote a header with a line break in its error message.
        require(
            token.isascii() and token.isprintable() and len(token.split()) == 1,
            f"There is no token in {source}: it must be one word of ASCII characters.",
        )
        return token

    def _explain(self, error: Exception, token: str | None, action: str) -> Exception:
        """Return the error to raise for one of the generated client."""
        import urllib3

        # When an error has no body, as with TLS, the client fails with another one on top.
        kind = self._package.ApiException
        cause = error.__context__ if isinstance(error.__context__, kind) else error
        if status := int(getattr(cause, "status", None) or 0):
            return self._refusal(cause, status, token, action)
        if not isinstance(cause, kind | urllib3.exceptions.HTTPError | OSError | ValueError):
            return cause
        # The connection's own description comes first.
        reason = one_line(str(getattr(cause, "reason", None) or cause)).rpartition(": ")[2]
        return Unreachable(
            f"Cannot reach {self.address} ({reason}): check --endpoint, --ca-cert, and that the "
            "port forward or the gateway is running."
        )

    def _refusal(self, error: Any, status: int, token: str | None, action: str) -> ServiceError:
        html = "html" in (error.headers or {}).get("Content-Type", "")
        message = "" if html else one_line(read_message(error.body), token)
        # The gateway answers an unknown path and a missing object with the same status and code.
        if 300 <= status < 400 or (status == 404 and message in ("", "Not Found")):
            return self._not_the_api(f"{status}")
        # Only the text says that a request lacks the namespace.
        if self.namespace is None and "namespace" in message:
            message += "; pass --namespace, as the cluster has several users"
        rights = f"check the token in --token-file or {TOKEN_VARIABLE}, its rights and --namespace"
        return refusal(self.address, status, action, message, rights=rights)

    def _not_the_api(self, answer: str) -> ServiceError:
        return ServiceError(
            f"{self.address} is not the Kubeflow Pipelines v2 API ({answer}): check --endpoint, "
            f"and if it is a login page, pass a token in --token-file or {TOKEN_VARIABLE}. Behind "
            "a dashboard, the endpoint ends in /pipeline."
        )
