"""What each pod of a run on Kubeflow tells the services, and that they find the same run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import StorageError
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.kubeflow.step.reporting import reporting
from pipeline_def.kubeflow.step_interface import StepInterface
from tests.tracking.services import Services

RUN = "0b6a3c1e-0000-4000-8000-000000000000"
PUSHED = {"pushed": 1.0, "pushed_version": "7", "pushed_destination": "gs://bucket/pushed/7"}

Report = Callable[..., None]


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as running:
        yield running


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What the steps have written, where the launcher keeps its copies."""
    verdict = {"headline": "Blessed.", "outcome": "blessed", "blessed": True}
    metrics = {"metrics": {"accuracy": {"value": 0.9}}, "verdict": verdict}
    pushed = {"metadata": PUSHED}
    training = {"config": {"training": {"epochs": 3}}}
    texts = {
        # On Kubeflow an artifact of these types is the file itself.
        "html": "<p>",
        "card": "# A",
        "metrics": json.dumps(metrics),
        "model/Format-Serving/saved_model.pb": "graph",
        "model_run/history.json": json.dumps({"loss": [2.0, 1.0]}),
        "model_run/training.json": json.dumps(training),
        "pushed_model/saved_model.pb": "graph",
        "output.json": json.dumps({"artifacts": {"pushed_model": {"artifacts": [pushed]}}}),
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def report(services: Services, files: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Run a step that reports to all services; nothing can be read from the buckets."""

    def fail(url: str) -> str:
        raise StorageError(f"{url} cannot be read.")

    # Clients of the real stores would retry for 15 s.
    monkeypatch.setattr("pipeline_def.tracking.facts.model_digest", fail)

    def listed(root: str, names: dict[str, dict[str, Any]]) -> dict[str, Any]:
        found = {n: [{"uri": f"{root}/{n}", "metadata": m}] for n, m in names.items()}
        return {"artifacts": {name: {"artifacts": one} for name, one in found.items()}}

    def run(step: str, inputs: Any, outputs: Any, error: Exception | None = None) -> None:
        config = TrackingConfig(
            mlflow=services.url, openlineage=services.url, model_registry=services.url
        )
        interface = StepInterface(step=step, pipeline="images", tracking=config)
        sides = []
        for root in (f"minio://bucket/images/{RUN}/{step}", str(files)):
            given = {"inputs": listed(root, inputs), "outputs": listed(root, outputs)}
            given["inputs"]["parameterValues"] = {"code_digest": "abc"}
            given["outputs"]["outputFile"] = str(files / "output.json")
            sides.append(given)
        with reporting(step, interface, *sides):
            if error:
                raise error

    return run


def test_the_report_and_the_push_are_one_run(services: Services, report: Report) -> None:
    examples = {"folder": "gs://b/pets", "input_fingerprint": "files:3"}
    inputs = {"examples": examples, "model": {}, "model_run": {}, "evaluation": {"split": "test"}}
    report("ImageReport", inputs, {"html": {}, "card": {}, "metrics": {}})
    report("Pusher", {"model": {}, "card": {}}, {"pushed_model": {}})
    [run] = services.runs.values()
    tags, info = run["tags"], run["info"]
    assert (tags["pipeline_run"], tags["images_fingerprint"]) == (RUN, "files:3")
    assert (tags["pushed_version"], tags["verdict"], info["status"]) == ("7", "blessed", "FINISHED")
    assert run["params"] == {"training.epochs": "3"}
    assert run["metrics"] == {("loss", 0, 2.0), ("loss", 1, 1.0), ("test_accuracy", 0, 0.9)}
    names = {name.removeprefix("1/run0/artifacts/") for name in services.files}
    assert names >= {"report.html", "model_card.md", "model/tf2model/saved_model.pb"}
    assert len(services.versions) == len(services.registry["model_version"]) == 1
    assert services.registry["artifact"][0]["uri"] == "gs://bucket/pushed/7"


def test_each_step_sends_its_own_events(services: Services, report: Report) -> None:
    report("StatisticsGen", {"examples": {}}, {"statistics": {}})
    with pytest.raises(ValueError, match="too few"):
        report("Trainer", {"examples": {}}, {"model": {}}, ValueError("too few images\nand more"))
    assert [(e["job"]["name"], e["eventType"]) for e in services.events] == [
        ("images.StatisticsGen", "START"),
        ("images.StatisticsGen", "COMPLETE"),
        ("images.Trainer", "START"),
        ("images.Trainer", "FAIL"),
    ]
    done, failed = services.events[1], services.events[3]
    assert [one["name"] for one in done["outputs"]] == [f"images/{RUN}/StatisticsGen/statistics"]
    assert done["outputs"][0]["namespace"] == "minio://bucket"
    assert failed["run"]["facets"]["errorMessage"]["message"] == "too few images"
    parents = {e["run"]["facets"]["parent"]["run"]["runId"] for e in services.events}
    assert len(parents) == 1
    assert not services.runs


def test_an_outage_does_not_fail_the_step(
    services: Services, report: Report, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services.fault = (503, "{}", {})
    report("Pusher", {"model": {}, "card": {}}, {"pushed_model": {}})
    assert capsys.readouterr().out.count("(503") == 3
    (files / "output.json").write_text("not JSON")
    report("Pusher", {"model": {}, "card": {}}, {"pushed_model": {}})
    assert "Not reported: JSONDecodeError" in capsys.readouterr().out
