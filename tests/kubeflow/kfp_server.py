"""A stub of the Kubeflow Pipelines API server: the v2beta1 REST calls that starting a run needs.

It stands for the cluster in the tests. Paths, field names and the shapes of errors are those of
the backend 2.14.3 (grpc-gateway for most, an own handler for uploads).
"""

from __future__ import annotations

import base64
import contextlib
import email
import json
import ssl
import time
from collections import deque
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

from tests.kubeflow.stub_server import StubServer

JSON = "application/json"
LOGIN = "<!DOCTYPE html><html><body>Log in to Your Account</body></html>"


class Refusal(Exception):
    """An error answer: its status and its body."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status, self.body = status, body


def gateway_error(status: int, code: int, message: str) -> Refusal:
    return Refusal(status, {"code": code, "message": message, "details": [], "error": message})


class Text(str):
    """An answer that is neither JSON nor a page."""


class KfpServer(StubServer):
    """The server's state, what was sent to it, and the faults it is told to have."""

    def __init__(self, tls: tuple[str, str] | None = None) -> None:
        super().__init__(Handler)
        self.token: str | None = None
        self.forbidden: str | None = None
        self.multi_user = False
        self.refuse_spec: str | None = None
        self.hang = 0.0
        self.login_page = False
        self.redirect: str | None = None
        self.plain_404 = False
        self.failures = 0  # so many requests fail before one works; a negative count never ends
        self.pipelines: list[dict[str, Any]] = []
        self.versions: list[dict[str, Any]] = []
        self.experiments: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.script: deque[dict[str, Any]] = deque()
        self.archive: dict[str, str] = {}
        """Node → its log, which Argo keeps."""
        self.pods: dict[str, str] = {}
        """Pod → its log, as long as it is there."""
        self.interface = True
        """Whether the interface is in front, which has a page for every path that is not its own."""
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._scheme = "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            self._scheme = "https"

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self._http.server_port}"

    def check(self, headers: Message) -> None:
        """Have the faults that are switched on."""
        if self.hang:
            time.sleep(self.hang)
        if self.failures:
            self.failures -= 1
            raise gateway_error(500, 13, "Internal Server Error: database is locked")
        if self.login_page:
            raise Refusal(200, LOGIN)
        if self.redirect:
            raise Refusal(302, "")
        if self.plain_404:
            raise Refusal(404, "<html>404 page not found</html>")
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            got = headers.get("authorization", "")
            raise gateway_error(401, 16, f"Unauthenticated: failed to review the token {got}")
        if self.forbidden:
            raise gateway_error(
                403, 7, f"PermissionDenied: User is not authorized {self.forbidden}"
            )

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        parts = path.removeprefix("/apis/v2beta1/").split("/")
        match method, parts:
            case "GET", ["pipelines"]:
                return {"pipelines": _chosen(self.pipelines, query)}
            case "POST", ["pipelines"]:
                return _added(self.pipelines, "pipeline_id", body)
            case "POST", ["pipelines", "upload_version"]:
                return self._upload(query, body)
            case "GET", ["pipelines", pipeline_id, "versions"]:
                own = [v for v in self.versions if v["pipeline_id"] == pipeline_id]
                return {"pipeline_versions": _chosen(own, query)}
            case "GET", ["experiments"]:
                return {"experiments": _chosen(self.experiments, query)}
            case "POST", ["experiments"]:
                if self.multi_user and not body.get("namespace"):
                    raise gateway_error(
                        400, 3, "Invalid input error: An experiment cannot have an empty namespace"
                    )
                return _added(self.experiments, "experiment_id", body)
            case "POST", ["runs"]:
                return _added(self.runs, "run_id", body | {"state": "PENDING"})
            case "GET", ["runs", run_id]:
                return self._run(run_id)
            case "GET", ["runs", _, "nodes", node, "artifacts", "main-logs:read"]:
                if node not in self.archive:
                    raise gateway_error(404, 5, f"ResourceNotFoundError: artifact {node} not found")
                return {"data": base64.b64encode(self.archive[node].encode()).decode()}
        return self._answer_beside(path, query)

    def _answer_beside(self, path: str, query: dict[str, str]) -> str:
        """Answer what is not of the API v2beta1: logs of pods."""
        if path == "/k8s/pod/logs" and self.interface:
            if query["podname"] in self.pods:
                return Text(self.pods[query["podname"]])
            raise Refusal(500, Text("Could not get main container logs"))
        if path.startswith("/apis/v1alpha1/runs/") and not self.interface:
            pod = path.split("/")[-2]
            # The status is sent before the log is read.
            return Text(self.pods.get(pod) or json.dumps({"error_message": f"no pod {pod}"}))
        if self.interface and not path.startswith("/apis/v2beta1/"):
            return "<!doctype html><html><title>Kubeflow Pipelines</title></html>"
        raise gateway_error(404, 5, "Not Found")

    def _upload(self, query: dict[str, str], body: bytes) -> Any:
        if self.refuse_spec:
            raise Refusal(500, {"error_message": self.refuse_spec, "error_details": "at line 1"})
        version = {"pipeline_id": query["pipelineid"], "display_name": query["name"]}
        if any(version.items() <= v.items() for v in self.versions):
            raise Refusal(409, {"error_message": "Already exist error", "error_details": ""})
        return _added(self.versions, "pipeline_version_id", version | {"text": body.decode()})

    def _run(self, run_id: str) -> Any:
        if not any(run["run_id"] == run_id for run in self.runs):
            raise gateway_error(404, 5, f"ResourceNotFoundError: Run {run_id} not found")
        step = self.script.popleft() if len(self.script) > 1 else self.script[0]
        return {"run_id": run_id} | step


def _chosen(rows: list[dict[str, Any]], query: dict[str, str]) -> list[dict[str, Any]]:
    (predicate,) = json.loads(unquote_plus(query["filter"]))["predicates"]
    assert predicate["operation"] in ("EQUALS", 1)
    wanted = {predicate["key"]: predicate["stringValue"]}
    if query.get("namespace"):
        wanted["namespace"] = query["namespace"]
    return [row for row in rows if wanted.items() <= row.items()]


def _added(rows: list[dict[str, Any]], key: str, row: dict[str, Any]) -> dict[str, Any]:
    rows.append({key: f"{key}-{len(rows) + 1}"} | row)
    return rows[-1]


class Handler(BaseHTTPRequestHandler):
    stub: KfpServer
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet for headers and body; two wait 40 ms for each other

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        target = urlsplit(self.path)
        body = self._body()
        self.stub.requests.append(f"{self.command} {target.path}")
        self.stub.headers.append({k.lower(): v for k, v in self.headers.items()})
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        try:
            self.stub.check(self.headers)
            self._send(200, self.stub.answer(self.command, target.path, query, body))
        except Refusal as refusal:
            self._send(refusal.status, refusal.body)

    def _body(self) -> Any:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            message = email.message_from_bytes(
                b"Content-Type: " + kind.encode() + b"\r\n\r\n" + content
            )
            _, part = message.walk()
            assert part.get_param("name", header="content-disposition") == "uploadfile"
            return part.get_payload(decode=True)
        return json.loads(content) if content else None

    def _send(self, status: int, body: Any) -> None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        kind = "text/plain" if isinstance(body, Text) else "text/html"
        self.send_header("Content-Type", kind if isinstance(body, str) else JSON)
        self.send_header("Content-Length", str(len(content)))
        if status == 302 and self.stub.redirect:
            self.send_header("Location", self.stub.redirect)
        self.end_headers()
        self.wfile.write(content)
        with contextlib.suppress(ConnectionError):
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass
