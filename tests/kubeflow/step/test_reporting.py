"""What the pod of the report and the push tells MLflow."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.kubeflow.step.reporting import report_pod
from pipeline_def.kubeflow.step_interface import StepInterface
from tests.kubeflow.stub_server import Response
from tests.tracking.mlflow_server import MlflowServer

RUN = "0b6a3c1e-0000-4000-8000-000000000000"
PUSHED = {"pushed": 1.0, "pushed_version": "7", "pushed_destination": "gs://bucket/pushed/7"}
PARTS = [StepInterface(step=name) for name in ("ImageReport", "Pusher")]
POD = StepInterface(pipeline="images", parts=PARTS)


@pytest.fixture
def server() -> Iterator[MlflowServer]:
    with MlflowServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the steps have written, where the launcher keeps its copies."""
    verdict = {"headline": "Blessed.", "outcome": "blessed", "blessed": True}
    metrics = {"metrics": {"accuracy": {"value": 0.9}}, "verdict": verdict}
    texts = {
        # On Kubeflow an artifact of these types is the file itself.
        "html": "<p>",
        "card": "# A",
        "metrics": json.dumps(metrics),
        "model_run/history.json": json.dumps({"loss": [2.0, 1.0]}),
        "model_run/training.json": json.dumps({"config": {"training": {"epochs": 3}}}),
    }
    folder = tmp_path / "images" / RUN
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def artifacts(folder: Path, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"artifacts": [{"uri": str(folder / name), "metadata": metadata}]}
        for name, metadata in properties.items()
    }


def report(server: MlflowServer, folder: Path, made: dict[str, Any], error: str = "") -> None:
    examples = {"folder": "gs://b/pets", "input_fingerprint": "files:3"}
    inputs = artifacts(folder, examples=examples, model={}, model_run={})
    given = {
        "inputs": {"artifacts": inputs, "parameterValues": {"Pusher_code_digest": "abc"}},
        "outputs": {"artifacts": artifacts(folder, html={})},
    }
    report_pod(
        TrackingConfig(mlflow=server.url),
        POD,
        given,
        {"artifacts": made | artifacts(folder, evaluation={"split": "t"})},
        error=error,
    )


def test_the_report_and_the_push_are_one_run(server: MlflowServer, folder: Path) -> None:
    made = artifacts(folder, html={}, card={}, metrics={})
    # The push failed, and its pod's retry completes the run.
    report(server, folder, made, error="no rights")
    assert server.runs[0]["info"]["status"] == "FAILED"
    report(server, folder, made | artifacts(folder, pushed_model=PUSHED))
    [run] = server.runs
    tags, info = run["tags"], run["info"]
    assert (tags["pipeline_run"], tags["images_fingerprint"]) == (RUN, "files:3")
    assert info["run_name"] == f"images {RUN}"
    assert (tags["pushed_version"], tags["verdict"], info["status"]) == ("7", "blessed", "FINISHED")
    assert tags["code_digest.Pusher"] == "abc"
    assert run["params"] == {"training.epochs": "3"}
    assert run["metrics"] == {("loss", 0, 2.0), ("loss", 1, 1.0), ("t_accuracy", 0, 0.9)}
    names = {name.removeprefix("1/run0/artifacts/") for name in server.files}
    assert names == {"report.html", "model_card.md", "metrics.json"}


def test_neither_an_outage_nor_a_surprise_fails_the_step(
    server: MlflowServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = artifacts(folder, html={}, card={}, metrics={})
    server.fault = Response("{}", 503)
    report(server, folder, made)
    assert "(503" in capsys.readouterr().out
    (folder / "metrics").write_text("not JSON")
    report(server, folder, made)
    assert "Not reported to MLflow: JSONDecodeError" in capsys.readouterr().out
    # Nothing is known before the report.
    report(server, folder, {})
    assert capsys.readouterr().out == ""
