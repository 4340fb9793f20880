"""A stub of the Kubeflow Pipelines API server: the v2beta1 REST calls of the client.

Paths, fields and errors are as in the backend 2.14.3: from grpc-gateway for most, from an own
handler for uploads.
"""

import datetime
import email
import json
import time
from collections import deque
from typing import Any
from urllib.parse import unquote_plus

import yaml

from tests.kubeflow.stub_server import Request, Response, StubServer

LOGIN = "<!DOCTYPE html><html><body>Log in to Your Account</body></html>"
CREATED = "2026-11-22T03:56:28Z"
Row = dict[str, Any]


class Refusal(Exception):
    """A response other than what was asked for."""

    def __init__(self, status: int, body: Any, location: str = "") -> None:
        super().__init__(status)
        self.status, self.body, self.location = status, body, location


def gateway_error(status: int, code: int, message: str) -> Refusal:
    return Refusal(status, {"code": code, "message": message, "details": [], "error": message})


class Text(str):
    """A response that is neither JSON nor a page."""


class KfpServer(StubServer):
    """The state of the server, the requests to it, and the faults that a test gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.token: str | None = None
        self.multi_user = False
        self.refuse_spec: str | None = None
        self.hang = 0.0
        self.fault: Refusal | None = None
        """Answers every request."""
        self.failures = 0
        """Number of requests that fail with `failure`; negative: all."""
        self.failure = gateway_error(500, 13, "Internal Server Error: database is locked")
        rows: list[list[Row]] = [[] for _ in range(5)]
        self.pipelines, self.versions, self.experiments, self.runs, self.schedules = rows
        self.script: deque[Row] = deque()
        """Responses to requests for a run; the last one stays."""
        self.kept: dict[str, str] = {}
        """URL of an object → its text."""
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []

    def respond(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.path}")
        self.headers.append(request.headers)
        try:
            self._check(request.headers.get("authorization", ""))
            upload = request.headers.get("content-type", "").startswith("multipart/form-data")
            body = _uploaded(request) if upload else request.json
            refusal = Refusal(200, self.answer(request.method, request.path, request.query, body))
        except Refusal as error:
            refusal = error
        kind = "text/plain" if isinstance(refusal.body, Text) else "text/html"
        return Response(refusal.body, refusal.status, kind, refusal.location)

    def _check(self, got: str) -> None:
        """Fail as the test wants it."""
        if self.hang:
            time.sleep(self.hang)
        if self.failures:
            self.failures -= 1
            raise self.failure
        if self.fault:
            raise self.fault
        if self.token and got != f"Bearer {self.token}":
            raise gateway_error(401, 16, f"Unauthenticated: failed to review the token {got}")

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        match method, path.removeprefix("/apis/v2beta1/").split("/"):
            case "GET", ["pipelines" | "experiments" as kind]:
                self._require_namespace(query.get("namespace"))
                return {kind: self._chosen(getattr(self, kind), query)}
            case "POST", ["pipelines" | "experiments" as kind]:
                self._require_namespace(body.get("namespace"))
                return _added(getattr(self, kind), f"{kind[:-1]}_id", body)
            case "GET", ["pipelines", _, "versions", version]:
                row = _row(self.versions, pipeline_version_id=version)
                spec, *platform = yaml.safe_load_all(row["text"])
                # As the server stores it: with a platform document one level deeper.
                spec = {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else spec
                return {"pipeline_spec": spec}
            case "POST", ["pipelines", "upload_version"]:
                return self._upload(query, body)
            case _, ["runs", *more]:
                return self._answer_runs(method, more, query, body)
            case _, ["recurringruns", *more]:
                return self._answer_schedules(method, more, query, body)
        return self._answer_beside(path, query)

    def _answer_runs(self, method: str, more: list[str], query: dict[str, str], body: Any) -> Any:
        match method, more:
            case "POST", []:
                return _added(
                    self.runs, "run_id", body | {"state": "PENDING", "created_at": CREATED}
                )
            case "GET", []:
                assert query["sort_by"] == "created_at desc"
                listed = [r for r in self.runs if r["experiment_id"] == query["experiment_id"]]
                return {"runs": listed[::-1][: int(query["page_size"])]}
            case "GET", [run_id]:
                step = self.script.popleft() if len(self.script) > 1 else self.script[0]
                return _row(self.runs, run_id=run_id) | step
            case "POST", [action] if action.endswith(":terminate"):
                run = _row(self.runs, run_id=action.partition(":")[0])
                run["state"] = "CANCELING"
                return {}
        raise gateway_error(404, 5, "Not Found")

    def _answer_schedules(
        self, method: str, more: list[str], query: dict[str, str], body: Any
    ) -> Any:
        if method == "POST" and more and more[0].endswith(":disable"):
            _row(self.schedules, recurring_run_id=more[0].partition(":")[0])["status"] = "DISABLED"
            return {}
        if method == "DELETE":
            self.schedules.remove(_row(self.schedules, recurring_run_id=more[0]))
            return {}
        if method == "GET":
            listed = [s for s in self.schedules if s["experiment_id"] == query["experiment_id"]]
            return {"recurringRuns": listed} if listed else {}
        cron = body["trigger"]["cron_schedule"]["cron"]
        # The server takes five fields, and the first of them for seconds.
        if len(cron.split()) != 6 and not cron.startswith("@"):
            raise gateway_error(400, 3, "Schedule cron is not a supported format")
        return _added(self.schedules, "recurring_run_id", body | {"status": "ENABLED"})

    def _require_namespace(self, namespace: str | None) -> None:
        """Refuse a request without a namespace, in the server's words."""
        if self.multi_user and not namespace:
            reason = "An experiment cannot have an empty namespace in multi-user mode"
            message = f"Failed to authorize the request: Invalid input error: {reason}"
            raise gateway_error(400, 3, message)

    def _chosen(self, rows: list[Row], query: dict[str, str]) -> list[Row]:
        (predicate,) = json.loads(unquote_plus(query["filter"]))["predicates"]
        assert predicate["operation"] in ("EQUALS", 1)
        wanted = {predicate["key"]: predicate["stringValue"]}
        # With a single user the server ignores namespaces.
        if query.get("namespace") and self.multi_user:
            wanted["namespace"] = query["namespace"]
        return [row for row in rows if wanted.items() <= row.items()]

    def _answer_beside(self, path: str, query: dict[str, str]) -> str:
        """Answer requests for files in the object store, which are outside of the API v2beta1."""
        if path != "/artifacts/get":
            raise gateway_error(404, 5, "Not Found")
        if (place := "{source}://{bucket}/{key}".format(**query)) in self.kept:
            return Text(self.kept[place])
        raise Refusal(500, Text("Failed to get object in bucket: NoSuchKey"))

    def _upload(self, query: dict[str, str], body: bytes) -> Any:
        if self.refuse_spec:
            raise Refusal(500, {"error_message": self.refuse_spec, "error_details": "at line 1"})
        version = {"pipeline_id": query["pipelineid"], "display_name": query["name"]}
        return _added(self.versions, "pipeline_version_id", version | {"text": body.decode()})


def _uploaded(request: Request) -> Any:
    """Return the file in a form."""
    kind = request.headers["content-type"].encode()
    message = email.message_from_bytes(b"Content-Type: " + kind + b"\r\n\r\n" + request.content)
    _, part = message.walk()
    assert part.get_param("name", header="content-disposition") == "uploadfile"
    return part.get_payload(decode=True)


def _row(rows: list[Row], **wanted: str) -> Row:
    for row in rows:
        if wanted.items() <= row.items():
            return row
    raise gateway_error(404, 5, f"ResourceNotFoundError: {wanted} not found")


def _added(rows: list[Row], key: str, row: Row) -> Row:
    rows.append({key: f"{key}-{len(rows) + 1}"} | row)
    return rows[-1]


def nodes(state: str, *rows: str, stopped: int | None = None) -> dict[str, Any]:
    """Return an answer, which lists nodes of the Argo workflow.

    Args:
        state: State of the run.
        rows: Name, state (`-`: not started), start and end, in seconds since the run began.
        stopped: When somebody stopped the run.
    """
    # The launcher's entries in the same list have no name.
    details: list[dict[str, Any]] = [{"task_id": "x", "start_time": stamp("0")}]
    for row in rows:
        name, node_state, start, end = row.split()
        times = {"start_time": stamp(start), "end_time": stamp(end)}
        known = {} if node_state == "-" else {"state": node_state}
        details.append({"display_name": name, **known, **times})
    stops = [] if stopped is None else [{"update_time": stamp(str(stopped)), "state": "CANCELING"}]
    run_details = {"task_details": details}
    return {"state": state, "state_history": stops, "run_details": run_details}


def stamp(second: str) -> str:
    """Return the API's text for a time; the year 1 for `-`, none."""
    if second == "-":
        return "0001-01-01T00:00:00Z"
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(0, int(second))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
