"""A stub of MLflow's server, in its wire format."""

from typing import Any
from urllib.parse import unquote

from tests.kubeflow.stub_server import Request, Response, StubServer

Row = dict[str, Any]


class MlflowServer(StubServer):
    """What the server has received, and the faults that a test gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.experiments: list[Row] = []
        self.runs: list[Row] = []
        self.files: dict[str, bytes] = {}
        self.authorizations: set[str] = set()
        self.fault: Response | None = None
        """What every request gets; without a status the connection ends."""

    def respond(self, request: Request) -> Response | None:
        self.authorizations.add(request.headers.get("authorization", ""))
        if self.fault:
            return self.fault if self.fault.status else None
        body = request.content if request.method == "PUT" else request.json
        return Response(self.answer(request.path, body))

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
        raise AssertionError(path)

    def _create_run(self, body: Row) -> Row:
        run_id = f"run{len(self.runs)}"
        uri = f"mlflow-artifacts:/1/{run_id}/artifacts"
        fields = {name: body[name] for name in ("run_name", "start_time")}
        info = {"run_id": run_id, "artifact_uri": uri, **fields}
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
