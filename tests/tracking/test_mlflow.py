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

import pytest
import requests

from components.contract.errors import ConfigurationError
from pipeline_def.config.config import Config, TrackingConfig
from pipeline_def.local.commands.run import reporting
from pipeline_def.runs.record import Data, Pushed, RunRecord, Step, StepOutput
from pipeline_def.tracking import report_run
from tests.kubeflow.stub_server import Request, Response, StubServer
from tests.local.run_samples import write_run
from tests.missing import lack

FINGERPRINT = "files:3,sha256:abc"


class Faulty(StubServer):
    """Answers every request alike; without a status the connection ends."""

    def __init__(self, fault: Response) -> None:
        super().__init__()
        self.fault = fault
        self.authorizations: set[str] = set()

    def respond(self, request: Request) -> Response | None:
        self.authorizations.add(request.headers.get("authorization", ""))
        return self.fault if self.fault.status else None


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


@pytest.mark.parametrize("url", ["https://me:s3cret@host", "https://host/?key=s3cret", "s3cret"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"tracking\.mlflow (must not|is)") as error:
        TrackingConfig(mlflow=url)
    assert (url == "s3cret") is ("s3cret" in str(error.value))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Response('{"message": "bad token s3cret"}', 401), "s/search (401: bad token ***): check"),
        (Response("<html>Sign in</html>", 200), "its response is unexpected (JSONDecodeError)"),
        (Response("", 302, location="https://login/?next=s3cret"), "(302: "),
        (Response('{"experiments": 1}', 200), "its response is unexpected (TypeError)"),
        (Response("", 0), " could not be reached ("),
    ],
)
def test_faults_are_a_sentence_without_secrets(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch, fault: Response, said: str
) -> None:
    with Faulty(fault) as server:
        for token, header in (("s3cret", "Bearer s3cret"), ("me:s3cret", "Basic bWU6czNjcmV0")):
            monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)
            server.authorizations.clear()
            line = report_run(record, TrackingConfig(mlflow=server.url))
            assert line.startswith("MLflow has not received run 1: ")
            assert said in line
            assert "s3cret" not in line
            assert server.authorizations == {header}
    line = report_run(record, TrackingConfig(mlflow="http://127.0.0.1:9"))
    assert "could not be reached (" in line
    assert "Connection refused)" in line


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of MLflow's own server."""
    program = shutil.which("mlflow") or lack("mlflow", "mlflow is not installed")
    folder, url = tmp_path_factory.mktemp("mlflow"), "http://127.0.0.1:5079"
    options = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination"]
    command = [program, "server", "--port", "5079", "--workers", "1", *options, str(folder)]
    log = folder / "mlflow.log"
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            while True:
                time.sleep(0.2)
                with contextlib.suppress(requests.ConnectionError):
                    requests.get(f"{url}/health")
                    break
                assert process.poll() is None, log.read_text()
            yield url
        finally:
            process.terminate()


def read_runs(url: str) -> list[Any]:
    body = {"experiment_ids": ["1"]}
    answer = requests.post(f"{url}/api/2.0/mlflow/runs/search", json=body).json()
    runs: list[Any] = answer["runs"]
    return runs


def read_pairs(run: Any, name: str) -> dict[str, Any]:
    return {pair["key"]: pair["value"] for pair in run["data"][name]}


@pytest.mark.slow
@pytest.mark.xdist_group("mlflow")
def test_mlflow_has_the_whole_run(server: str, record: RunRecord) -> None:
    variables = {"steps": {"all": {"env": {"KEY": "hush"}}}}
    secret = {"data": "https://me:hush@host/pets.zip", "kubeflow": variables}
    given = dataclasses.replace(record, configuration=record.configuration | secret)
    line = report_run(given, TrackingConfig(mlflow=f"{server}/"))
    [run] = read_runs(server)
    wanted = {"run_id": run["info"]["run_id"]}
    assert line == f"MLflow has run 1: {server}/#/experiments/1/runs/{wanted['run_id']}"
    assert run["info"]["status"] == "FINISHED"
    assert read_pairs(run, "params")["training.epochs"] == "20"
    assert "hush" not in str(run)
    known = {"images_fingerprint": FINGERPRINT, "pushed_version": "7", "pipeline_run": "1"}
    tags = read_pairs(run, "tags")
    assert {name: tags[name] for name in known} == known
    assert tags["code_digest.Trainer"] == "t1"
    metrics = {"loss": 0.5, "accuracy": 0.2, "eval_accuracy": 0.9}
    assert read_pairs(run, "metrics") == metrics
    api, metric = f"{server}/api/2.0/mlflow", {**wanted, "metric_key": "loss"}
    series = requests.get(f"{api}/metrics/get-history", metric).json()["metrics"]
    # JSON has no infinities, such as the loss of the second epoch.
    assert sorted((int(point["step"]), point["value"]) for point in series) == [(0, 2.0), (2, 0.5)]
    files = requests.get(f"{api}/artifacts/list", wanted).json()["files"]
    assert {file["path"] for file in files} == {"report.html", "model_card.md"}
    page = f"{api}-artifacts/artifacts/1/{wanted['run_id']}/artifacts/report.html"
    assert requests.get(page).content == b"<p>"


@pytest.mark.slow
@pytest.mark.xdist_group("mlflow")
def test_a_run_reports_however_it_ends(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(output=str(tmp_path), tracking=TrackingConfig(mlflow=server))
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
    failed = [run for run in read_runs(server) if run["info"]["status"] == "FAILED"]
    assert [read_pairs(run, "tags")["pipeline_run"] for run in failed] == ["2"]
