"""Requests to the Kubernetes API from within a pod, and a sentence for each that fails.

Plain HTTPS with the token of the pod's service account: importing the `kubernetes` package takes
4.6 s here, for the six requests that are needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.service_errors import Caller, Unreachable, one_line
from pipeline_def.kubeflow.workers.tf_job import API_GROUP, API_VERSION, PLURAL, Manifest, Pod

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Of one request, seconds.
_TIMEOUT = 30.0

_NOT_FOUND = 404


@dataclass(frozen=True)
class Cluster:
    """The API server, and the namespace of the pod."""

    address: str
    namespace: str
    token_file: Path
    ca_cert: str | None = None

    @staticmethod
    def of_pod() -> Cluster:
        """Find the API server as every container in Kubernetes can.

        Raises:
            ServiceError: this is no pod, or it has no service account.
        """
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (_ACCOUNT / "token").is_file():
            raise ServiceError(
                "Several workers are started through the Kubernetes API, and this container has no "
                "service account for it: run the step in a pod with automountServiceAccountToken."
            )
        # An address of IPv6 has colons of its own.
        host = f"[{host}]" if ":" in host else host
        return Cluster(
            f"https://{host}:{port}",
            (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip(),
            _ACCOUNT / "token",
            str(_ACCOUNT / "ca.crt"),
        )

    def own_pod(self) -> Pod:
        """Return the pod that this runs in; its host name is its name."""
        name = os.environ.get("KFP_POD_NAME") or os.environ.get("HOSTNAME", "")
        found = self._get(f"{self._core}/pods/{name}", f"read its own pod {name}")
        account = found["spec"].get("serviceAccountName", "default")
        return Pod(name, self.namespace, found["metadata"]["uid"], account)

    def create(self, job: Manifest) -> None:
        """Create a TFJob.

        Raises:
            ServiceError: the cluster has no TFJobs, or the account may not create any.
        """
        try:
            self._request("POST", self._jobs, "create a TFJob", body=job)
        except _Missing:
            raise ServiceError(
                "The cluster knows no TFJob (404), which several workers need: install Kubeflow's "
                "training-operator, or set kubeflow.workers to 1."
            ) from None

    def job(self, name: str) -> Manifest | None:
        """Return a TFJob; None if there is none of this name."""
        try:
            return self._get(f"{self._jobs}/{name}", f"read the TFJob {name}")
        except _Missing:
            return None

    def delete(self, name: str) -> bool:
        """Delete a TFJob and its pods; say whether there was one."""
        # Foreground: it is there until its pods are gone.
        query = {"propagationPolicy": "Foreground"}
        try:
            self._request("DELETE", f"{self._jobs}/{name}", f"delete the TFJob {name}", query)
        except _Missing:
            return False
        return True

    def pods(self, job: str) -> list[Manifest]:
        """Return the pods of a TFJob."""
        query = {"labelSelector": f"training.kubeflow.org/job-name={job}"}
        path = f"{self._core}/pods"
        found = json.loads(self._request("GET", path, f"list the pods of {job}", query))
        return list(found.get("items", []))

    def config_map(self, name: str) -> dict[str, str]:
        """Return the data of a config map in the pod's namespace; empty if there is none."""
        try:
            found = self._get(f"{self._core}/configmaps/{name}", f"read the config map {name}")
        except _Missing:
            return {}
        return dict(found.get("data") or {})

    def log(self, pod: str, *, since: str = "", lines: int = 0) -> str:
        """Return the log of a pod with a time before each line; "" as long as there is none.

        Args:
            pod: its name.
            since: RFC 3339 time of the first line; empty: from the beginning.
            lines: number of lines, the last ones; 0: all.
        """
        query = {"timestamps": "true", "sinceTime": since, "tailLines": str(lines or "")}
        chosen = {name: value for name, value in query.items() if value}
        path = f"{self._core}/pods/{pod}/log"
        try:
            return self._request("GET", path, f"read the log of {pod}", chosen)
        except (_Missing, _NotStarted):
            return ""

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def _jobs(self) -> str:
        return f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{self.namespace}/{PLURAL}"

    def _get(self, path: str, action: str) -> Manifest:
        found: Manifest = json.loads(self._request("GET", path, action))
        return found

    def _request(
        self,
        method: str,
        path: str,
        action: str,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
    ) -> str:
        """Return the text of an answer; `action` is as in "could not <action>"."""
        import urllib3

        # Kubernetes renews the token, so it is read again for every request.
        token = self.token_file.read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        url = f"{self.address}{path}" + (f"?{urlencode(query)}" if query else "")
        content = json.dumps(body).encode() if body is not None else None
        with urllib3.PoolManager(ca_certs=self.ca_cert, retries=False, timeout=_TIMEOUT) as pool:
            try:
                answer = pool.request(method, url, headers=headers, body=content)
            except urllib3.exceptions.HTTPError as error:
                reason = one_line(str(error), token)
                raise Unreachable(f"{self.address} could not {action} ({reason}).") from None
        text = answer.data.decode("utf-8", "replace")
        if answer.status >= 300:
            raise self._refusal(answer.status, action, text, token)
        return text

    def _refusal(self, status: int, action: str, text: str, token: str) -> ServiceError:
        message = one_line(_message(text), token)
        if status == _NOT_FOUND:
            return _Missing(f"{self.address} could not {action} ({status}: {message}).")
        if status == 400 and "waiting to start" in message:
            return _NotStarted(message)
        return Caller(
            self.address,
            f"the step's service account in the namespace {self.namespace}",
            "check that the pod's token is mounted",
            "give it the role in docs/how-to/kubeflow.md, section Several workers",
        ).refusal(status, action, message)


class _Missing(ServiceError):
    """There is no such object."""


class _NotStarted(ServiceError):
    """A pod has no log yet."""


def _message(text: str) -> str:
    """Return the message of a `Status` object of Kubernetes."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text
