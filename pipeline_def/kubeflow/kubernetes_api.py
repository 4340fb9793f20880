"""Requests to the Kubernetes API from within a pod; each failure is one sentence.

By the official client, which is imported by those that ask. Answers stay dictionaries of JSON: the
client's classes reject what a newer server leaves out.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from components.contract.errors import ServiceError
from pipeline_def.service_errors import Unreachable, one_line, read_message, refusal

Manifest = dict[str, Any]

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
# To connect, and to wait for bytes: the client ignores a single number that is not an integer.
_TIMEOUT_SECONDS = (30.0, 30.0)


class KubernetesClient:
    """The API server, and the namespace of the pod."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        """Use an API server by a `kubernetes.client.Configuration`."""
        from kubernetes import client

        # Callers repeat what may be repeated.
        configuration.retries = False
        configuration.proxy = None
        self.namespace, self._address = namespace, configuration.host
        api = client.ApiClient(configuration)
        self._core, self._batch = client.CoreV1Api(api), client.BatchV1Api(api)

    @classmethod
    def of_pod(cls) -> Self:
        """Find the API server as every container in Kubernetes can."""
        from kubernetes import client, config

        configuration = client.Configuration()
        try:
            config.load_incluster_config(configuration)
            namespace = _NAMESPACE.read_text(encoding="utf-8").strip()
        except (config.ConfigException, OSError) as error:
            raise ServiceError(
                "Starting workers needs the Kubernetes API, and this container has no service "
                "account for it: run the step in a pod with automountServiceAccountToken."
            ) from error
        return cls(configuration, namespace)

    def own_pod(self) -> Manifest:
        """Return the pod that this process runs in; its host name is its name."""
        name = os.environ.get("KFP_POD_NAME") or os.environ.get("HOSTNAME", "")
        pod = self._ask(f"read its own pod {name}", self._core.read_namespaced_pod, name)
        if pod is None:
            raise ServiceError(f"{self._address} knows no pod {name}, in which this step runs.")
        return pod

    def config_map(self, name: str) -> dict[str, str]:
        """Return the data of a config map in the pod's namespace; empty if it does not exist."""
        read = self._core.read_namespaced_config_map
        config_map = self._ask(f"read the config map {name}", read, name)
        return dict((config_map or {}).get("data") or {})

    def create(self, service: Manifest, job: Manifest) -> None:
        """Create the Service and the Job of workers."""
        self._ask("create a Service", self._core.create_namespaced_service, body=service)
        self._ask("create a Job", self._batch.create_namespaced_job, body=job)

    def delete(self, name: str) -> bool:
        """Delete a Job with its pods and its Service; return whether the Job existed."""
        self._ask(f"delete the Service {name}", self._core.delete_namespaced_service, name)
        delete = self._batch.delete_namespaced_job
        # Foreground: the job exists until its pods are gone.
        deleted = self._ask(f"delete the Job {name}", delete, name, propagation_policy="Foreground")
        return deleted is not None

    def job(self, name: str) -> Manifest | None:
        """Return a Job; None if it does not exist."""
        return self._ask(f"read the Job {name}", self._batch.read_namespaced_job, name)

    def job_pods(self, job: str) -> list[Manifest]:
        """Return the pods of a Job."""
        pods = self._core.list_namespaced_pod
        listed = self._ask(f"list the pods of {job}", pods, label_selector=f"job-name={job}")
        return list((listed or {}).get("items", []))

    def log(self, pod: str, **wanted: int) -> list[str]:
        """Return log lines of a pod, each preceded by its time; [] until the pod has a log.

        `wanted` is `since_seconds` or `tail_lines`; all lines without either.
        """
        read = self._core.read_namespaced_pod_log
        text = self._request(f"read the log of {pod}", read, pod, timestamps=True, **wanted) or ""
        # Not splitlines(): a progress bar has carriage returns within a line.
        return [line for line in text.split("\n") if line]

    def _ask(self, *request: Any, **options: Any) -> Manifest | None:
        """Return the object in the answer; None if it does not exist."""
        text = self._request(*request, **options)
        return None if text is None else json.loads(text)

    def _request(
        self, action: str, call: Callable[..., Any], *names: str, **options: Any
    ) -> str | None:
        """Return the text of the answer; None for an object or a log that does not exist yet.

        `action` completes "could not <action>".
        """
        import urllib3
        from kubernetes.client import ApiException

        common = {"_request_timeout": _TIMEOUT_SECONDS, "_preload_content": False}
        try:
            response = call(*names, namespace=self.namespace, **common, **options)
            return str(response.data.decode("utf-8", "replace"))
        except urllib3.exceptions.HTTPError as error:
            reason = one_line(str(error))
        except ApiException as error:
            status, message = error.status, read_message(error.body)
            if status == 404 or (status == 400 and "waiting to start" in message):
                return None
            if status:
                rights = (
                    f"give the step's service account in the namespace {self.namespace} the role "
                    "in docs/how-to/kubeflow.md, section Several workers"
                )
                text = one_line(message)
                raise refusal(self._address, status, action, text, rights=rights) from None
            reason = one_line(error.reason)
        raise Unreachable(f"{self._address} could not {action} ({reason}).") from None
