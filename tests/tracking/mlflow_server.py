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
            case ["runs", "create"]:
                run_id = f"run{len(self.runs)}"
                place = {
                    "run_id": run_id,
                    "artifact_uri": f"mlflow-artifacts:/1/{run_id}/artifacts",
                }
                tags = _read_pairs(body.pop("tags"))
                self.runs.append(
                    {"info": body | place, "tags": tags, "params": {}, "metrics": set()}
                )
                return {"run": {"info": self.runs[-1]["info"]}}
        [run] = (run for run in self.runs if run["info"]["run_id"] == body["run_id"])
        match path.removeprefix("/api/2.0/mlflow/"):
            case "runs/log-batch":
                assert len(body.get("params", [])) <= 100
                run["params"] |= _read_pairs(body.get("params", []))
                run["tags"] |= _read_pairs(body.get("tags", []))
                run["metrics"] |= {
                    (metric["key"], metric["step"], metric["value"])
                    for metric in body.get("metrics", [])
                }
            case "runs/update":
                run["info"] |= body
            case _:
                raise AssertionError(path)
        return {}


def _read_pairs(pairs: list[Row]) -> Row:
    return {pair["key"]: pair["value"] for pair in pairs}
