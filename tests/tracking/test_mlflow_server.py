"""MLflow's own server takes a run, where `mlflow` is installed: `uv tool install mlflow`."""

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

from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.runs.record import RunRecord
from pipeline_def.tracking import report_run
from tests.missing import lack
from tests.tracking.conftest import FINGERPRINT

pytestmark = pytest.mark.slow

_PORT = 5079


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
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


def test_the_real_server_has_the_run_once(url: str, record: RunRecord) -> None:
    config, record = TrackingConfig(mlflow=url), dataclasses.replace(record, pipeline="Ann's pets")
    for _ in range(2):
        assert report_run(record, config).startswith("MLflow has run 1: ")
    path = "mlflow/experiments/get-by-name?experiment_name=Ann%27s%20pets"
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
