"""A stub of the Kubernetes API server with its controller of Jobs, for one namespace.

Paths, verbs, statuses and errors are those of Kubernetes 1.34, for the requests that are made.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import Configuration

from pipeline_def.kubeflow.kubernetes_api import KubernetesClient
from tests.kubeflow.stub_server import Request, Response, StubServer

NAMESPACE = "kubeflow"
POD = "images-x7k2p-1234"
TOKEN = "secret-token"

_PATH = re.compile(rf"/apis?/(?:(\w+)/)?v1/namespaces/{NAMESPACE}/(\w+)(?:/([^/]+))?(?:/(\w+))?")

Job = dict[str, Any]
Answer = tuple[int, dict[str, Any] | str]


class KubernetesServer(StubServer):
    """The server's state, its requests, and the faults it is told to have."""

    def __init__(self) -> None:
        super().__init__()
        self.role: list[dict[str, list[str]]] = docs_role()
        """Rules of the role of the account."""
        self.failures = 0  # so many requests fail before one works
        self.script: deque[str] = deque(["Pending", "Running", "Succeeded"])
        """States of a job, one for each look at it; the last one stays."""
        self.on_create: Callable[[Job], None] = lambda job: None
        self.on_look: Callable[[str], None] = lambda state: None
        self.jobs: dict[str, Job] = {}
        self.created: list[Job] = []
        self.services: dict[str, Job] = {}
        self.slow_deletions = 0  # so many looks find a job that is being deleted
        self.pods: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, list[tuple[str, str]]] = {}
        """Pod → its lines, each with the time."""
        self.config_maps: dict[str, dict[str, str]] = {}
        self.requests: list[str] = []

    def cluster(self) -> KubernetesClient:
        """Return the API as a pod of the namespace sees it."""
        configuration = Configuration(host=self.url)
        configuration.api_key["authorization"] = f"Bearer {TOKEN}"
        return KubernetesClient(configuration, NAMESPACE)

    def fail_worker(
        self, pod: str, *lines: str, at: str = "10:00:00", code: int = 1, reason: str = "Error"
    ) -> None:
        """Have a pod of a job that failed, with these last lines of its log."""
        ended = {"exitCode": code, "reason": reason, "finishedAt": f"2026-11-22T{at}Z"}
        state = [{"name": "worker", "state": {"terminated": ended}}]
        self.pods[pod] = {"status": {"phase": "Failed", "containerStatuses": state}}
        self.logs[pod] = [(f"2026-11-22T{at}.5Z", line) for line in lines]

    def respond(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.path}")
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        known = (kind.lower(), token) == ("bearer", TOKEN)
        status, body = self._answer(request) if known else _status(401, "Unauthorized")
        return Response(body, status, "application/json")

    def _answer(self, request: Request) -> Answer:
        if self.failures:
            self.failures -= 1
            return _status(503, "etcdserver: leader changed")
        parts = _PATH.fullmatch(request.path)
        assert parts, request.path
        group, kind, name, part = (text or "" for text in parts.groups())
        verbs = {"POST": "create", "DELETE": "delete", "GET": "get" if name else "list"}
        right = verbs[request.method], f"{kind}/{part}".rstrip("/"), group
        if not any(_allows(rule, *right) for rule in self.role):
            return _status(403, f"User cannot {' '.join(right)} in the namespace {NAMESPACE}")
        answer = self._answer_jobs if kind == "jobs" else self._answer_others
        return answer(request, kind, name, part) or _status(404, f'{kind} "{name}" not found')

    def _answer_others(self, request: Request, kind: str, name: str, part: str) -> Answer | None:
        match kind:
            case "services" if request.method == "POST":
                self.services[request.json["metadata"]["name"]] = request.json
                return 201, request.json
            case "services" if name in self.services:
                return 200, self.services.pop(name)
            case "configmaps" if name in self.config_maps:
                return 200, {"metadata": {"name": name}, "data": self.config_maps[name]}
            case "pods" if part == "log":
                return self._log(name, request.query)
            case "pods" if not name:
                label, _, job = request.query["labelSelector"].partition("=")
                assert label == "job-name"
                return 200, {"items": [*self._pods_of(job)]}
            case "pods" if name == POD:
                spec = {"serviceAccountName": "pipeline-runner"}
                metadata = {"name": POD, "namespace": NAMESPACE, "uid": "f3c1"}
                return 200, {"metadata": metadata, "spec": spec}
        return None

    def _pods_of(self, job: str) -> Iterator[dict[str, Any]]:
        """Yield the pods of a job, JOB-INDEX-SUFFIX, with their index."""
        known: dict[str, dict[str, Any]] = {name: {} for name in self.logs} | self.pods
        for name, pod in known.items():
            if name.startswith(f"{job}-"):
                index = name.removeprefix(f"{job}-").partition("-")[0]
                annotations = {"batch.kubernetes.io/job-completion-index": index}
                metadata = {**pod.get("metadata", {}), "name": name, "annotations": annotations}
                yield {**pod, "metadata": metadata}

    def _answer_jobs(self, request: Request, _: str, name: str, __: str) -> Answer | None:
        if request.method == "POST":
            body = request.json
            name = body["metadata"]["name"]
            if name in self.jobs:
                return _status(409, f'jobs.batch "{name}" already exists')
            self.jobs[name] = body
            self.created.append(body)
            self.on_create(body)
            return 201, body
        if (job := self.jobs.get(name)) is None:
            return None
        if request.method == "DELETE":
            job["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:00Z"
            if not self.slow_deletions:
                del self.jobs[name]
            return 200, {"kind": "Status", "status": "Success"}
        if "deletionTimestamp" in job["metadata"]:
            self.slow_deletions -= 1
            if not self.slow_deletions:
                del self.jobs[name]
            return 200, job
        state = self.script.popleft() if len(self.script) > 1 else self.script[0]
        self.on_look(state)
        kind = {"Succeeded": "SuccessCriteriaMet"}.get(state, state)
        condition = {"type": kind, "status": "True", "message": f"Job {name} is {state}."}
        plain = {"Pending": {"active": 4}, "Running": {"active": 4, "ready": 4}}
        return 200, {**job, "status": plain.get(state, {"conditions": [condition]})}

    def _log(self, pod: str, query: dict[str, str]) -> Answer:
        assert query["timestamps"] == "True"
        if pod not in self.logs:
            return _status(400, f'container "worker" in pod "{pod}" is waiting to start')
        lines = [f"{time} {text}" for time, text in self.logs[pod]]
        return 200, "".join(f"{line}\n" for line in lines[-int(query.get("tailLines", 10**6)) :])


def docs_role() -> list[dict[str, list[str]]]:
    """Return the rules of the role in the documentation."""
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "kubeflow.md").read_text()
    [block] = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, flags=re.DOTALL)
    role, _binding = yaml.safe_load_all(block)
    return list(role["rules"])


def _allows(rule: dict[str, list[str]], verb: str, resource: str, group: str) -> bool:
    return verb in rule["verbs"] and resource in rule["resources"] and group in rule["apiGroups"]


def _status(code: int, message: str) -> Answer:
    reason = "NotFound" if code == 404 else "Failure"
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason}
    return code, {**status, "message": message, "code": code}
