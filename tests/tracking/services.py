"""MLflow, a receiver of OpenLineage and the model registry in one server, in their wire formats."""

import json
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.kubeflow.stub_server import StubServer

Row = dict[str, Any]


class Services(StubServer):
    """What the services have received, and the faults that a test gives them."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.experiments: dict[str, Row] = {}
        self.runs: dict[str, Row] = {}
        self.files: dict[str, bytes] = {}
        self.models: list[str] = []
        self.versions: list[Row] = []
        self.events: list[Row] = []
        self.registry: dict[str, list[Row]] = defaultdict(list)
        self.authorizations: set[str] = set()
        self.requests: list[str] = []
        self.fault: tuple[int, str, dict[str, str]] | None = None
        """Status, body and headers of every response."""
        self.seconds = 0.0
        """Before every response."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """Return JSON, or a status with JSON."""
        self.requests.append(f"{method} {path}")
        if path == "/api/v1/lineage":
            self.events.append(body)
            return 201, None
        if path.startswith("/api/model_registry/v1alpha3/"):
            return self._registry(method, path.split("/")[4:], query, body)
        if path.startswith("/api/2.0/mlflow-artifacts/artifacts/"):
            self.files[unquote(path).partition("/artifacts/")[2]] = body
            return {}
        kind, _, action = path.removeprefix("/api/2.0/mlflow/").partition("/")
        if kind == "experiments":
            return self._experiments(action, query, body)
        return self._runs(action, body) if kind == "runs" else self._models(kind, action, body)

    def _experiments(self, action: str, query: dict[str, str], body: Any) -> Any:
        match action:
            case "get-by-name":
                if found := self.experiments.get(query["experiment_name"]):
                    return {"experiment": found}
                return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no experiment"}
            case "create":
                row = {"experiment_id": str(len(self.experiments) + 1), "lifecycle_stage": "active"}
                self.experiments[body["name"]] = row
                return row
        raise AssertionError(action)

    def _runs(self, action: str, body: Any) -> Any:
        match action:
            case "search":
                wanted = body["filter"].split("'")[1]
                found = [r for r in self.runs.values() if r["tags"]["pipeline_run"] == wanted]
                return {"runs": [{"info": r["info"]} for r in found]} if found else {}
            case "create":
                return {"run": {"info": self._create_run(body)["info"]}}
            case "log-batch":
                return self._log(self.runs[body["run_id"]], body)
            case "update":
                self.runs[body["run_id"]]["info"] |= body
                return {"run_info": body}
        raise AssertionError(action)

    def _models(self, kind: str, action: str, body: Any) -> Any:
        match kind, action:
            case "model-versions", "search":
                return {"model_versions": self.versions} if self.versions else {}
            case "registered-models", "create" if body["name"] in self.models:
                return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "exists"}
            case "registered-models", "create":
                self.models.append(body["name"])
                return {"registered_model": body}
            case "model-versions", "create":
                self.versions.append(body)
                return {"model_version": body}
        raise AssertionError(action)

    def _create_run(self, body: Row) -> Row:
        run_id = f"run{len(self.runs)}"
        root = f"mlflow-artifacts:/{body['experiment_id']}/{run_id}/artifacts"
        tags = {tag["key"]: tag["value"] for tag in body["tags"]}
        info = {"run_id": run_id, "artifact_uri": root}
        self.runs[run_id] = {"info": info, "tags": tags, "params": {}, "metrics": set()}
        return self.runs[run_id]

    def _log(self, run: Row, body: Row) -> Any:
        for pair in body.get("params", []):
            if run["params"].setdefault(pair["key"], pair["value"]) != pair["value"]:
                return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "changed"}
        run["tags"] |= {pair["key"]: pair["value"] for pair in body.get("tags", [])}
        run["metrics"] |= {(m["key"], m["step"], m["value"]) for m in body.get("metrics", [])}
        assert len(body.get("params", [])) <= 100
        return {}

    def _registry(self, method: str, names: list[str], query: dict[str, str], body: Any) -> Any:
        kind = names[-1].rstrip("s")
        rows = self.registry[kind]
        if method == "POST":
            rows.append({**body, "id": str(len(rows) + 1)})
            return 201, rows[-1]
        if len(names) == 3:
            return {"items": rows, "size": len(rows)}
        found = [row for row in rows if row["name"] == query["name"]]
        return found[0] if found else (404, {"code": "404", "message": "no model registered"})


class _Handler(BaseHTTPRequestHandler):
    stub: Services
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        parts = urlsplit(self.path)
        self.stub.authorizations.add(self.headers.get("Authorization", ""))
        time.sleep(self.stub.seconds)
        status, text, headers = self.stub.fault or (200, "", {})
        if not self.stub.fault:
            body = data if self.command == "PUT" else json.loads(data or b"null")
            query = dict(parse_qsl(parts.query))
            answer = self.stub.answer(self.command, parts.path, query, body)
            status, content = answer if isinstance(answer, tuple) else (200, answer)
            text = "" if content is None else json.dumps(content)
        if status:
            self._send(status, text, headers)
        else:
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _send(self, status: int, text: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        kind = "text/html" if text.startswith("<") else "application/json"
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass
