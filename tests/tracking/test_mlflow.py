"""What MLflow receives of a run, and what its faults do."""

import dataclasses
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.contract.errors import ConfigurationError
from pipeline_def import tracking
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.runs.record import Data, Pushed, RunRecord, StepOutput, write_record
from tests.kubeflow.stub_server import Response
from tests.local.run_samples import write_run
from tests.missing import lack
from tests.tracking.mlflow_server import MlflowServer

FINGERPRINT = "files:3,sha256:abc"


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    """A run with files, whose model was pushed."""

    def put(path: str, content: Any) -> StepOutput:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return StepOutput(str(file.parent), "Model")

    put("pushed/7/saved_model.pb", "graph")
    put("pushed/7/variables/variables.index", "checksums")
    history = {"loss": [2.0, float("inf"), 0.5], "val_accuracy": [0.1, 0.2, 0.3]}
    report = {"html": put("html/report.html", "<p>"), "card": put("card/model_card.md", "# A")}
    base = write_run(tmp_path, 1)
    done = dataclasses.replace(base.steps["Trainer"], inputs={}, outputs={})
    graph = put("model/Format-Serving/saved_model.pb", "graph")
    trained = {
        "model": dataclasses.replace(graph, uri=str(tmp_path / "model")),
        "model_run": put("model_run/history.json", history),
    }
    steps = {
        "Trainer": dataclasses.replace(done, outputs=trained),
        "ImageReport": dataclasses.replace(done, state="cached", outputs=report),
        "Pusher": done,
    }
    changed = dataclasses.replace(
        base,
        steps=steps,
        data=Data("/data/pets", FINGERPRINT),
        pushed=Pushed("7", str(tmp_path / "pushed" / "7")),
    )
    write_record(changed, str(tmp_path))
    return changed


@pytest.fixture
def server() -> Iterator[MlflowServer]:
    with MlflowServer() as running:
        yield running


def test_mlflow_has_the_whole_run_once(
    server: MlflowServer, record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "me:secret")
    config = TrackingConfig(mlflow=f"{server.url}/")
    variables = {"steps": {"all": {"env": {"KEY": "hush"}}}}
    secret = {**record.configuration, "kubeflow": variables}
    for _ in range(2):
        line = tracking.report_run(dataclasses.replace(record, configuration=secret), config)
        assert line == f"MLflow has run 1: {server.url}/#/experiments/1/runs/run0"
    [run], [version] = server.runs, server.versions
    assert (run["info"]["status"], server.experiments[0]["name"]) == ("FINISHED", "images")
    assert run["params"]["training.epochs"] == "20"
    assert not any(name.startswith(("kubeflow", "tracking")) for name in run["params"])
    first, last = ("loss", 0, 2.0), ("loss", 2, 0.5)
    assert run["metrics"] >= {first, last, ("val_accuracy", 1, 0.2), ("eval_accuracy", 0, 0.9)}
    # JSON has no infinities.
    assert not any(metric[:2] == ("loss", 1) for metric in run["metrics"])
    for tags in (run["tags"], {tag["key"]: tag["value"] for tag in version["tags"]}):
        assert (tags["images_fingerprint"], tags["pushed_version"]) == (FINGERPRINT, "7")
        assert (tags["code_digest.Trainer"], tags["pipeline_run"]) == ("t1", "1")
        assert len(tags["model_digest"]) == 64
    assert (version["name"], version["run_id"]) == ("images", "run0")
    assert version["source"] == "mlflow-artifacts:/1/run0/artifacts/model"
    top = "1/run0/artifacts"
    assert server.files[f"{top}/report.html"] == b"<p>"
    assert server.files[f"{top}/model/tf2model/variables/variables.index"] == b"checksums"
    described = yaml.safe_load(server.files[f"{top}/model/MLmodel"])
    assert json.loads(described["signature"]["inputs"])[0]["name"] == "image_bytes"
    assert server.authorizations == {"Basic bWU6c2VjcmV0"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Response('{"message": "bad token s3cret"}', 401), "(401: bad token ***): check"),
        (Response("<html>Sign in</html>", 200), "(200: "),
        (Response("", 302, location="https://login/?next=s3cret"), "(302: "),
        (Response('{"experiments": 1}', 200), "its response is unexpected (TypeError)"),
        (Response("", 0), "could not find the experiment images ("),
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
    line = tracking.report_run(record, TrackingConfig(mlflow=server.url))
    assert line.startswith("MLflow has not received run 1: ")
    assert said in line
    assert "s3cret" not in line
    assert server.authorizations == {"Bearer s3cret"}


def test_a_dead_or_silent_server_does_not_delay_a_run(
    server: MlflowServer, record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, dead = time.monotonic(), TrackingConfig(mlflow="http://127.0.0.1:9")
    assert "(Connection refused)" in tracking.report_run(record, dead).replace("[Errno 111] ", "")
    server.seconds = 1.0
    monkeypatch.setattr(tracking, "LIMIT_SECONDS", 0.2)
    line = tracking.report_run(record, TrackingConfig(mlflow=server.url))
    assert "it takes longer than 0.2 s" in line
    assert time.monotonic() - begin < 3.0


def test_a_run_reports_however_it_ends(
    server: MlflowServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, 1)

    def run(number: int, error: BaseException) -> None:
        with tracking.reporting(TrackingConfig(mlflow=server.url), str(tmp_path)):
            write_run(tmp_path, number, state="failed")
            raise error

    with pytest.raises(ValueError, match="later"):
        run(2, ValueError("later"))
    with pytest.raises(KeyboardInterrupt):
        run(3, KeyboardInterrupt())
    # The run before it is left alone.
    assert capsys.readouterr().out.count("MLflow has run 2: ") == 1
    [reported] = server.runs
    assert (reported["tags"]["pipeline_run"], reported["info"]["status"]) == ("2", "FAILED")


@pytest.mark.parametrize("url", ["https://me:s3cret@host", "https://host/?key=s3cret", "s3cret"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"tracking\.mlflow (must not|is 's3cret')"
    ) as error:
        TrackingConfig(mlflow=url)
    assert (url == "s3cret") is ("s3cret" in str(error.value))


_PORT = 5079


@pytest.fixture
def real_server(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("mlflow")
    if program is None:
        lack("mlflow", "mlflow is not installed")
    store = ("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db")
    files = ("--artifacts-destination", str(tmp_path / "files"))
    command = [program, "server", "--port", str(_PORT), "--workers", "1", *store, *files]
    with (tmp_path / "mlflow.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{_PORT}"
    try:
        for _ in range(900):
            time.sleep(0.2)
            try:
                urllib.request.urlopen(f"{url}/health")
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "mlflow.log").read_text()
        yield url
    finally:
        server.terminate()
        server.wait()


def ask(url: str, path: str, **body: Any) -> Any:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"{url}/api/2.0/{path}", data)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as response:
        return json.load(response)


@pytest.mark.slow
def test_the_real_server_has_the_run_once(real_server: str, record: RunRecord) -> None:
    url = real_server
    config = TrackingConfig(mlflow=url)
    for _ in range(2):
        assert tracking.report_run(record, config).startswith("MLflow has run 1: ")
    path = "mlflow/experiments/get-by-name?experiment_name=images"
    experiment = ask(url, path)["experiment"]
    [run] = ask(url, "mlflow/runs/search", experiment_ids=[experiment["experiment_id"]])["runs"]
    assert run["info"]["status"] == "FINISHED"
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert (tags["images_fingerprint"], tags["pushed_version"]) == (FINGERPRINT, "7")
    metrics = {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}
    assert (metrics["loss"], metrics["eval_accuracy"]) == (0.5, 0.9)
    path = f"mlflow/artifacts/list?run_id={run['info']['run_id']}"
    assert {one["path"] for one in ask(url, path)["files"]} == {
        *("report.html", "model_card.md", "model"),
    }
    [version] = ask(url, "mlflow/model-versions/search")["model_versions"]
    assert (version["name"], version["run_id"]) == ("images", run["info"]["run_id"])
