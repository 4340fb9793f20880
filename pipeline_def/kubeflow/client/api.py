"""Send requests to the API of open-source Kubeflow Pipelines; each error is one sentence."""

import json
import os
from typing import Any

from components.contract.configuration import require
from components.contract.errors import ServiceError
from pipeline_def.config.yaml_file import read_text
from pipeline_def.service_errors import (
    Unreachable,
    is_http_url,
    one_line,
    read_message,
    refusal,
)

TOKEN_VARIABLE = "KFP_TOKEN"
_TIMEOUT_SECONDS = 30.0


class Api:
    """The REST API v2beta1, with a time limit and checked responses.

    `kfp.Client` prints links, sets no time limits, reads a namespace from ~/.config/kfp, and
    accepts a login page as a response.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        namespace: str | None = None,
        token_file: str | None = None,
        ca_cert: str | None = None,
    ) -> None:
        """Validate every value; nothing is sent yet."""
        # The dashboard shows the pages of pipelines in a frame below /_/, where there is no API.
        self.address = endpoint.partition("#")[0].rstrip("/").replace("/_/pipeline", "/pipeline")
        self.namespace, self._token_file, self._ca_cert = namespace, token_file, ca_cert
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

    def call(self, method: str, path: str, action: str, **content: Any) -> dict[str, Any]:
        """Send a request and return the JSON object in the response.

        `action` completes "could not <action>" in error messages; `content` is as for `requests`.

        Raises:
            Unreachable: The API gave no valid response; a retry may succeed.
            ServiceError: The API refused, or something else responded.
        """
        text, _ = self._send(method, f"/apis/v2beta1/{path}", action, **content)
        try:
            response = json.loads(text)
        except ValueError:
            raise self._not_the_api("it returned a web page or other text") from None
        if not isinstance(response, dict):
            raise self._not_the_api("it returned a list or a single value")
        return response

    def create(self, key: str, path: str, action: str, **content: Any) -> str:
        """Do as `call` does; return the ID `key` of what was created."""
        response = self.call("POST", path, action, **content)
        if key not in response:
            raise self._not_the_api(f"it returned no {key}")
        return str(response[key])

    def text(self, path: str, action: str, **query: str | None) -> str:
        """Return the text at a path next to the API, such as a log; raise errors as `call` does."""
        text, kind = self._send("GET", path, action, params=query)
        if "html" in kind:
            raise self._not_the_api("it returned a web page")
        return text

    def _send(self, method: str, path: str, action: str, **content: Any) -> tuple[str, str]:
        """Return text and content type of the response."""
        import requests

        token = self._token()
        # A proxy that checks logins answers this with a status instead of a redirect to its page.
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with requests.Session() as session:
            # Neither proxies, which would also be asked for localhost, nor the logins of ~/.netrc.
            session.trust_env = False
            try:
                response = session.request(
                    method,
                    f"{self.address}{path}",
                    headers=headers,
                    timeout=_TIMEOUT_SECONDS,
                    # They lead to login pages.
                    allow_redirects=False,
                    verify=self._ca_cert or True,
                    **content,
                )
            except requests.RequestException as error:
                raise self._unreachable(error) from None
        text = response.content.decode("utf-8", "replace")
        kind = response.headers.get("Content-Type", "")
        if not 200 <= response.status_code < 300:
            message = "" if "html" in kind else one_line(read_message(text), token)
            raise self._refusal(response.status_code, action, message)
        return text, kind

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
        # An error about a header with a line break would quote it.
        require(
            token.isascii() and token.isprintable() and len(token.split()) == 1,
            f"There is no token in {source}: it must be one word of ASCII characters.",
        )
        return token

    def _unreachable(self, error: Exception) -> Unreachable:
        cause = error.args[0] if error.args else error
        # The connection's own description comes first.
        reason = one_line(str(getattr(cause, "reason", None) or cause)).rpartition(": ")[2]
        return Unreachable(
            f"Cannot reach {self.address} ({reason}): check --endpoint, --ca-cert, and that the "
            "port forward or the gateway is running."
        )

    def _refusal(self, status: int, action: str, message: str) -> ServiceError:
        # The gateway answers an unknown path and a missing object with the same status and code.
        if 300 <= status < 400 or (status == 404 and message in ("", "Not Found")):
            return self._not_the_api(f"{status}")
        # Only the text says that a request lacks the namespace.
        if self.namespace is None and "namespace" in message:
            message += "; pass --namespace, as the cluster has several users"
        rights = f"check the token in --token-file or {TOKEN_VARIABLE}, its rights and --namespace"
        return refusal(self.address, status, action, message, rights=rights)

    def _not_the_api(self, reason: str) -> ServiceError:
        return ServiceError(
            f"{self.address} is not the Kubeflow Pipelines v2 API ({reason}): check --endpoint, "
            f"and if it is a login page, pass a token in --token-file or {TOKEN_VARIABLE}. Behind "
            "a dashboard, the endpoint ends in /pipeline."
        )
