"""What MLflow receives of a run, and what its faults do."""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import requests

from components.contract.errors import ConfigurationError
from pipeline_def.config.config import Config
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.local.commands.run import reporting
from pipeline_def.runs.record import Data, Pushed, RunRecord, Step, StepOutput
from pipeline_def.tracking import report_run
from tests.kubeflow.stub_server import Request, Response, StubServer
from tests.local.run_samples import write_run
from tests.missing import lack

FINGERPRINT = "files:3,sha256:abc"
Row = dict[str, Any]


class MlflowServer(StubServer):
    """A stub in the wire format: what it has received, and the faults that a test gives it."""

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
        if request.method == "PUT":
            self.files[unquote(request.path).partition("/artifacts/")[2]] = request.content
            return Response({})
        return Response(self.answer(request.path.removeprefix("/api/2.0/mlflow/"), request.json))

    def answer(self, path: str, body: Row) -> Any:
        pairs = {name: _read_pairs(body.pop(name, [])) for name in ("tags", "params")}
        match path:
            case "experiments/search":
                return {"experiments": self.experiments}
            case "experiments/create":
                self.experiments.append({"experiment_id": "1", **body})
                return self.experiments[-1]
            case "runs/create":
                place = f"mlflow-artifacts:/1/run{len(self.runs)}/artifacts"
                body |= {"run_id": f"run{len(self.runs)}", "artifact_uri": place}
                self.runs.append({"info": body, **pairs, "metrics": set()})
                return {"run": {"info": body}}
            case "runs/log-batch" | "runs/update":
                [run] = (run for run in self.runs if run["info"]["run_id"] == body["run_id"])
                assert len(pairs["params"]) <= 100
                for name, values in pairs.items():
                    run[name] |= values
                metrics = body.pop("metrics", [])
                run["metrics"] |= {(one["key"], one["step"], one["value"]) for one in metrics}
                run["info"] |= body
                return {}
        raise AssertionError(path)


def _read_pairs(pairs: list[Row]) -> Row:
    return {pair["key"]: pair["value"] for pair in pairs}


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    """A run with files, whose model was pushed."""

    def put(path: str, content: str) -> StepOutput:
        file = tmp_path / path
        file.parent.mkdir()
        file.write_text(content)
        return StepOutput(str(file.parent), "")

    history = {"loss": [2.0, float("inf"), 0.5], "accuracy": [0.1, 0.2]}
    report = {"html": put("html/report.html", "<p>"), "card": put("card/model_card.md", "# A")}
    base = write_run(tmp_path, 1)
    trained = {"model_run": put("model_run/history.json", json.dumps(history))}
    steps = {
        "Trainer": Step("done", outputs=trained),
        "ImageReport": Step("cached", outputs=report),
    }
    data = Data("/data/pets", FINGERPRINT)
    return dataclasses.replace(base, steps=steps, data=data, pushed=Pushed("7", "/out/pushed/7"))


@pytest.fixture
def server() -> Iterator[MlflowServer]:
    with MlflowServer() as running:
        yield running


def test_mlflow_has_the_whole_run(
    server: MlflowServer, record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "me:secret")
    config = TrackingConfig(mlflow=f"{server.url}/")
    variables = {"steps": {"all": {"env": {"KEY": "hush"}}}}
    secret = {"data": "https://me:hush@host/pets.zip", "kubeflow": variables}
    given = dataclasses.replace(record, configuration=record.configuration | secret)
    line = report_run(given, config)
    assert line == f"MLflow has run 1: {server.url}/#/experiments/1/runs/run0"
    [run] = server.runs
    assert (run["info"]["status"], server.experiments[0]["name"]) == ("FINISHED", "images")
    assert run["params"]["training.epochs"] == "20"
    assert "hush" not in str(run)
    # JSON has no infinities, such as the loss of the second epoch.
    of_epochs = {("loss", 0, 2.0), ("loss", 2, 0.5), ("accuracy", 0, 0.1), ("accuracy", 1, 0.2)}
    assert run["metrics"] == of_epochs | {("eval_accuracy", 0, 0.9)}
    tags, folder = run["tags"], "1/run0/artifacts"
    assert (tags["images_fingerprint"], tags["pushed_version"]) == (FINGERPRINT, "7")
    assert (tags["code_digest.Trainer"], tags["pipeline_run"]) == ("t1", "1")
    assert server.files == {f"{folder}/report.html": b"<p>", f"{folder}/model_card.md": b"# A"}
    assert server.authorizations == {"Basic bWU6c2VjcmV0"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            Response('{"message": "bad token s3cret"}', 401),
            "refused mlflow/experiments/search (401: bad token ***): check",
        ),
        (Response("<html>Sign in</html>", 200), "its response is unexpected (JSONDecodeError)"),
        (Response("", 302, location="https://login/?next=s3cret"), "(302: "),
        (Response('{"experiments": 1}', 200), "its response is unexpected (TypeError)"),
        (Response("", 0), " could not be reached ("),
    ],
)
def test_faults_are_a_sentence_without_secrets(
    server: MlflowServer,
    record: RunRecord,
    monkeypatch: pytest.MonkeyPatch,
    fault: Response,
    said: str,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    server.fault = fault
    line = report_run(record, TrackingConfig(mlflow=server.url))
    assert line.startswith("MLflow has not received run 1: ")
    assert said in line
    assert "s3cret" not in line
    assert server.authorizations == {"Bearer s3cret"}
    line = report_run(record, TrackingConfig(mlflow="http://127.0.0.1:9"))
    assert "could not be reached (" in line
    assert "Connection refused)" in line


def test_a_run_reports_however_it_ends(
    server: MlflowServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(output=str(tmp_path), tracking=TrackingConfig(mlflow=server.url))
    write_run(tmp_path, 1)

    @reporting(config)
    def run(number: int, error: BaseException) -> None:
        write_run(tmp_path, number, state="failed")
        raise error

    with pytest.raises(ValueError, match="later"):
        run(2, ValueError("later"))
    with pytest.raises(KeyboardInterrupt):
        run(3, KeyboardInterrupt())
    # Neither the run before it, nor the one that the user stopped.
    assert capsys.readouterr().out.count("MLflow has run 2: ") == 1
    [reported] = server.runs
    assert (reported["tags"]["pipeline_run"], reported["info"]["status"]) == ("2", "FAILED")


@pytest.mark.parametrize("url", ["https://me:s3cret@host", "https://host/?key=s3cret", "s3cret"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"tracking\.mlflow (must not|is)") as error:
        TrackingConfig(mlflow=url)
    assert (url == "s3cret") is ("s3cret" in str(error.value))


@pytest.fixture
def real_server(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("mlflow") or lack("mlflow", "mlflow is not installed")
    url, store = "http://127.0.0.1:5079", f"sqlite:///{tmp_path}/mlflow.db"
    command = [program, "server", "--port", "5079", "--workers", "1", "--backend-store-uri", store]
    log = tmp_path / "mlflow.log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [*command, "--artifacts-destination", str(tmp_path)], stdout=file, stderr=file
        )
    try:
        while True:
            time.sleep(0.2)
            with contextlib.suppress(requests.ConnectionError):
                requests.get(f"{url}/health")
                break
            assert server.poll() is None, log.read_text()
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.mark.slow
def test_the_real_server_has_the_run(real_server: str, record: RunRecord) -> None:
    config, api = TrackingConfig(mlflow=real_server), f"{real_server}/api/2.0/mlflow"
    line = report_run(record, config)
    assert line.startswith("MLflow has run 1: ")
    wanted = {"run_id": line.rpartition("/")[2]}
    run = requests.get(f"{api}/runs/get", wanted).json()["run"]
    assert run["info"]["status"] == "FINISHED"
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert (tags["images_fingerprint"], tags["pushed_version"]) == (FINGERPRINT, "7")
    metrics = {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}
    assert (metrics["loss"], metrics["eval_accuracy"]) == (0.5, 0.9)
    files = requests.get(f"{api}/artifacts/list", wanted).json()["files"]
    assert {file["path"] for file in files} == {"report.html", "model_card.md"}
