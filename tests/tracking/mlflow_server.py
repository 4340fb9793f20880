"""A stub of MLflow's server, in its wire format."""

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.kubeflow.stub_server import StubServer

Row = dict[str, Any]


class MlflowServer(StubServer):
    """What the server has received, and the faults that a test gives it."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.experiments: list[Row] = []
        self.runs: list[Row] = []
        self.files: dict[str, bytes] = {}
        self.models: list[Row] = []
        self.versions: list[Row] = []
        self.authorizations: set[str] = set()
        self.fault: tuple[int, str, dict[str, str]] | None = None
        """Status, body and headers of every response."""
        self.seconds = 0.0
        """Before every response."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, path: str, body: Any) -> Any:
        if path.startswith("/api/2.0/mlflow-artifacts/artifacts/"):
            self.files[unquote(path).partition("/artifacts/")[2]] = body
            return {}
        match path.removeprefix("/api/2.0/mlflow/").split("/"):
            case ["experiments", "search"]:
                return {"experiments": self.experiments}
            case ["experiments", "create"]:
                self.experiments.append({"experiment_id": "1", **body})
                return self.experiments[-1]
            case ["runs", "search"]:
                wanted = body["filter"].split("'")[1]
                found = [run for run in self.runs if run["tags"]["pipeline_run"] == wanted]
                return {"runs": [{"info": run["info"]} for run in found]}
            case ["runs", "create"]:
                return {"run": {"info": self._create_run(body)["info"]}}
            case ["runs", "log-batch"]:
                return self._log(self._run(body), body)
            case ["runs", "update"]:
                return self._run(body)["info"].update(body) or {}
            case ["registered-models", action]:
                self.models += [body] if action == "create" else []
                return {"registered_models": self.models}
            case ["model-versions", action]:
                self.versions += [body] if action == "create" else []
                return {"model_versions": self.versions}
        raise AssertionError(path)

    def _create_run(self, body: Row) -> Row:
        run_id = f"run{len(self.runs)}"
        info = {"run_id": run_id, "artifact_uri": f"mlflow-artifacts:/1/{run_id}/artifacts"}
        tags = {tag["key"]: tag["value"] for tag in body["tags"]}
        self.runs.append({"info": info, "tags": tags, "params": {}, "metrics": set()})
        return self.runs[-1]

    def _run(self, body: Row) -> Row:
        return next(run for run in self.runs if run["info"]["run_id"] == body["run_id"])

    def _log(self, run: Row, body: Row) -> Row:
        assert len(body.get("params", [])) <= 100
        run["params"] |= {pair["key"]: pair["value"] for pair in body.get("params", [])}
        run["tags"] |= {pair["key"]: pair["value"] for pair in body.get("tags", [])}
        run["metrics"] |= {(m["key"], m["step"], m["value"]) for m in body.get("metrics", [])}
        return {}


class _Handler(BaseHTTPRequestHandler):
    stub: MlflowServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.stub.authorizations.add(self.headers.get("Authorization", ""))
        time.sleep(self.stub.seconds)
        status, text, headers = self.stub.fault or (200, "", {})
        if not self.stub.fault:
            body = data if self.command == "PUT" else json.loads(data or b"null")
            text = json.dumps(self.stub.answer(urlsplit(self.path).path, body))
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass
