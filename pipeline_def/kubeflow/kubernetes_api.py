"""Requests to the Kubernetes API from within a pod; each failure is one sentence.

Plain HTTPS with the token of the pod's service account: importing the `kubernetes` package takes
4.6 s, for the few requests made here.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from components.contract.errors import ServiceError
from pipeline_def.service_errors import Unreachable, one_line, read_message, refusal

Manifest = dict[str, Any]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Pod:
    """The pod that this process runs in."""

    name: str
    namespace: str
    uid: str
    service_account: str


@dataclass(frozen=True)
class Cluster:
    """The API server, and the namespace of the pod."""

    address: str
    namespace: str
    token_file: Path
    ca_cert: str | None = None

    @classmethod
    def of_pod(cls) -> Self:
        """Find the API server as every container in Kubernetes can."""
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (_ACCOUNT / "token").is_file():
            raise ServiceError(
                "Starting workers needs the Kubernetes API, and this container has no service "
                "account for it: run the step in a pod with automountServiceAccountToken."
            )
        host = f"[{host}]" if ":" in host else host  # IPv6
        namespace = (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        certificate = str(_ACCOUNT / "ca.crt")
        return cls(f"https://{host}:{port}", namespace, _ACCOUNT / "token", certificate)

    def own_pod(self) -> Pod:
        """Return the pod that this process runs in; its host name is its name."""
        name = os.environ.get("KFP_POD_NAME") or os.environ.get("HOSTNAME", "")
        found = self._get(f"{self._core}/pods/{name}", f"read its own pod {name}")
        if found is None:
            raise ServiceError(f"{self.address} knows no pod {name}, in which this step runs.")
        account = found["spec"].get("serviceAccountName", "default")
        return Pod(name, self.namespace, found["metadata"]["uid"], account)

    def config_map(self, name: str) -> dict[str, str]:
        """Return the data of a config map in the pod's namespace; empty if it does not exist."""
        found = self._get(f"{self._core}/configmaps/{name}", f"read the config map {name}")
        return dict((found or {}).get("data") or {})

    def create_job(self, job: Manifest) -> None:
        """Create a Job."""
        self._request("POST", self._jobs, "create a Job", body=job)

    def create_service(self, service: Manifest) -> None:
        """Create a Service."""
        self._request("POST", f"{self._core}/services", "create a Service", body=service)

    def delete_service(self, name: str) -> None:
        """Delete a Service, if it exists."""
        self._request("DELETE", f"{self._core}/services/{name}", f"delete the Service {name}")

    def job(self, name: str) -> Manifest | None:
        """Return a Job; None if it does not exist."""
        return self._get(f"{self._jobs}/{name}", f"read the Job {name}")

    def delete_job(self, name: str) -> bool:
        """Delete a Job and its pods; return whether it existed."""
        # Foreground: the job exists until its pods are gone.
        query = {"propagationPolicy": "Foreground"}
        path, action = f"{self._jobs}/{name}", f"delete the Job {name}"
        return self._request("DELETE", path, action, query) is not None

    def job_pods(self, job: str) -> list[Manifest]:
        """Return the pods of a Job."""
        query = {"labelSelector": f"job-name={job}"}
        found = self._get(f"{self._core}/pods", f"list the pods of {job}", query)
        return list((found or {}).get("items", []))

    def log(self, pod: str, *, since: str = "", lines: int = 0) -> list[str]:
        """Return log lines of a pod, each preceded by its time; [] until the pod has a log.

        `since` is an RFC 3339 time, of which the API ignores fractions of a second; `lines` is the
        number of lines from the end, 0 for all.
        """
        query = {"timestamps": "true", "sinceTime": since, "tailLines": str(lines or "")}
        chosen = {name: value for name, value in query.items() if value}
        path = f"{self._core}/pods/{pod}/log"
        text = self._request("GET", path, f"read the log of {pod}", chosen) or ""
        # Not splitlines(): a progress bar has carriage returns within a line.
        return [line for line in text.split("\n") if line]

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    def _get(self, path: str, action: str, query: dict[str, str] | None = None) -> Manifest | None:
        text = self._request("GET", path, action, query)
        return None if text is None else json.loads(text)

    def _request(
        self,
        method: str,
        path: str,
        action: str,
        query: dict[str, str] | None = None,
        body: Manifest | None = None,
    ) -> str | None:
        """Return the text of the response; None for an object or a log that does not exist yet.

        `action` completes "could not <action>".
        """
        import urllib3

        # Kubernetes renews the token, so it is read for every request.
        token = self.token_file.read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = json.dumps(body).encode() if body is not None else None
        with urllib3.PoolManager(
            ca_certs=self.ca_cert, retries=False, timeout=_TIMEOUT_SECONDS
        ) as pool:
            try:
                response = pool.request(
                    method, f"{self.address}{path}", fields=query, headers=headers, body=content
                )
            except urllib3.exceptions.HTTPError as error:
                reason = one_line(str(error), token)
                raise Unreachable(f"{self.address} could not {action} ({reason}).") from None
        status, text = response.status, response.data.decode("utf-8", "replace")
        if status < 300:
            return text
        if status == 404 or (status == 400 and "waiting to start" in text):
            return None
        rights = (
            f"give the step's service account in the namespace {self.namespace} the role in "
            "docs/how-to/kubeflow.md, section Several workers"
        )
        message = one_line(read_message(text), token)
        raise refusal(self.address, status, action, message, rights=rights)
