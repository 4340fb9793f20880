"""What MLflow, OpenLineage and the model registry receive of a run, and what their faults do."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import local_runner
from components.contract.errors import ConfigurationError
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.runs.record import RunRecord, Step, write_record
from pipeline_def.tracking import send
from tests.local.run_samples import write_run
from tests.tracking.conftest import FINGERPRINT
from tests.tracking.services import Services


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as running:
        yield running


@pytest.fixture
def everything(services: Services) -> TrackingConfig:
    return TrackingConfig(
        mlflow=services.url, openlineage=services.url, model_registry=f"{services.url}/"
    )


def reported(record: RunRecord, config: TrackingConfig, output: Path) -> list[str]:
    return [one.text for one in send.report(record, config, str(output), limit=10)]


def test_mlflow_has_the_whole_run(
    services: Services, record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "me:secret")
    [line] = reported(record, TrackingConfig(mlflow=services.url, experiment="pets"), tmp_path)
    assert line == f"MLflow has run 1: {services.url}/#/experiments/1/runs/run0"
    run = services.runs["run0"]
    assert (run["info"]["status"], list(services.experiments)) == ("FINISHED", ["pets"])
    assert run["params"]["training.epochs"] == "20"
    assert not any(name.startswith(("kubeflow", "tracking")) for name in run["params"])
    assert run["metrics"] >= {
        ("loss", 0, 2.0),
        ("loss", 2, 0.5),
        ("val_accuracy", 1, 0.2),
        ("eval_accuracy", 0, 0.9),
    }
    assert not any(m[:2] == ("loss", 1) for m in run["metrics"])
    [version] = services.versions
    for tags in (run["tags"], {tag["key"]: tag["value"] for tag in version["tags"]}):
        assert (tags["images_fingerprint"], tags["pushed_version"]) == (FINGERPRINT, "7")
        assert (tags["code_digest.Trainer"], tags["pipeline_run"]) == ("t1", "1")
        assert len(tags["model_digest"]) == 64
    assert (version["name"], version["run_id"]) == ("images", "run0")
    assert version["source"] == "mlflow-artifacts:/1/run0/artifacts/model"
    top = "1/run0/artifacts"
    assert services.files[f"{top}/report.html"] == b"<p>"
    assert services.files[f"{top}/model/tf2model/variables/variables.index"] == b"checksums"
    described = yaml.safe_load(services.files[f"{top}/model/MLmodel"])
    assert json.loads(described["signature"]["inputs"])[0]["name"] == "image_bytes"
    assert services.authorizations == {"Basic bWU6c2VjcmV0"}


def test_nothing_is_sent_twice(
    services: Services, record: RunRecord, everything: TrackingConfig, tmp_path: Path
) -> None:
    """Not even if the note of what was sent is lost, or the same model is pushed again."""
    assert len(reported(record, everything, tmp_path)) == 3
    assert reported(record, everything, tmp_path) == []
    (tmp_path / "runs" / "1" / "sent.json").unlink()
    assert len(reported(record, everything, tmp_path)) == 3
    again = dataclasses.replace(record, id="2")
    (tmp_path / "runs" / "2").mkdir()
    reported(again, everything, tmp_path)
    assert len(services.runs) == 2
    assert (len(services.versions), services.models) == (1, ["images"])
    assert {kind: len(rows) for kind, rows in services.registry.items()} == {
        "registered_model": 1,
        "model_version": 1,
        "artifact": 1,
    }


def test_the_registry_has_the_version_with_its_lineage(
    services: Services, record: RunRecord, everything: TrackingConfig, tmp_path: Path
) -> None:
    reported(record, everything, tmp_path)
    [version], [artifact] = services.registry["model_version"], services.registry["artifact"]
    assert (version["name"], version["registeredModelId"]) == ("7", "1")
    properties = version["customProperties"]
    assert properties["images_fingerprint"]["string_value"] == FINGERPRINT
    assert properties["eval_accuracy"] == {
        "double_value": 0.9,
        "metadataType": "MetadataDoubleValue",
    }
    assert (artifact["uri"], artifact["artifactType"]) == (
        str(tmp_path / "pushed" / "7"),
        "model-artifact",
    )


def test_events_connect_the_images_with_the_pushed_model(
    services: Services, record: RunRecord, everything: TrackingConfig, tmp_path: Path
) -> None:
    reported(record, everything, tmp_path)
    named = {(e["job"]["name"], e["eventType"]): e for e in services.events}
    assert len(named) == len(services.events) == 12
    gen = named["images.ImageExampleGen", "COMPLETE"]
    [images], [examples] = gen["inputs"], gen["outputs"]
    assert (images["name"], images["facets"]["version"]["datasetVersion"]) == (
        "/data/pets",
        FINGERPRINT,
    )
    assert examples["facets"]["schema"]["fields"] == [{"name": "image/encoded", "type": "BYTES"}]
    quality = examples["facets"]["dataQualityMetrics"]
    assert (quality["rowCount"], quality["columnMetrics"]["image/class/text"]["distinctCount"]) == (
        3,
        2,
    )
    assert examples["outputFacets"]["outputStatistics"]["rowCount"] == 3
    trainer = named["images.Trainer", "COMPLETE"]
    assert trainer["inputs"][0]["name"] == examples["name"]
    assert trainer["run"]["runId"] == named["images.Trainer", "START"]["run"]["runId"]
    parent = trainer["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == named["images", "COMPLETE"]["run"]["runId"]
    assert named["images.Pusher", "COMPLETE"]["outputs"][-1]["name"].endswith("pushed/7")
    facets = [f for e in services.events for f in e["run"]["facets"].values()]
    assert all({"_producer", "_schemaURL"} <= facet.keys() for facet in facets)


def test_a_failed_run(services: Services, everything: TrackingConfig, tmp_path: Path) -> None:
    record = write_run(tmp_path, 3, until="Trainer", state="failed", error="no memory")
    steps = record.steps | {"Trainer": Step("failed", record.started)}
    reported(dataclasses.replace(record, steps=steps), everything, tmp_path)
    assert services.runs["run0"]["info"]["status"] == "FAILED"
    ends = [e for e in services.events if e["eventType"] == "FAIL"]
    assert [e["job"]["name"] for e in ends] == ["images.Trainer", "images"]
    assert ends[0]["run"]["facets"]["errorMessage"]["message"] == "no memory"
    assert services.versions == []
    assert not services.registry


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ((401, '{"message": "bad token s3cret"}', {}), "check the token in the environment"),
        ((500, '{"error_code": "INTERNAL_ERROR", "message": "locked"}', {}), "(500: locked)"),
        ((502, "<html>Bad gateway</html>", {}), "(502)."),
        ((200, "<html>Sign in</html>", {}), "it returned a web page"),
        ((302, "", {"Location": "https://login/?next=s3cret"}), "it redirected, 302"),
        ((200, "[]", {}), "is not MLflow"),
        ((200, '{"experiment": 1}', {}), "its response has an unexpected form"),
        ((0, "", {}), "could not find the experiment images ("),
    ],
)
def test_faults_are_a_sentence_without_secrets(
    services: Services,
    record: RunRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: tuple[int, str, dict[str, str]],
    said: str,
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    config = TrackingConfig(mlflow=services.url, tokens={"mlflow": "TOKEN"})
    services.fault = fault
    [line] = reported(record, config, tmp_path)
    assert line.startswith("MLflow has not received run 1: ")
    assert said in line
    assert f"`local_runner.py runs --send --output {tmp_path}` sends it again" in line
    assert "s3cret" not in line
    services.fault = None
    assert services.authorizations == {"Bearer s3cret"}
    assert len(reported(record, config, tmp_path)) == 1
    assert len(services.runs) == 1


def test_a_deleted_experiment(services: Services, record: RunRecord, tmp_path: Path) -> None:
    services.experiments["images"] = {"experiment_id": "1", "lifecycle_stage": "deleted"}
    [line] = reported(record, TrackingConfig(mlflow=services.url), tmp_path)
    assert "was deleted: restore it there, or set tracking.experiment" in line


@pytest.mark.slow
def test_a_slow_service_delays_neither_the_run_nor_another_service(
    services: Services, record: RunRecord, tmp_path: Path
) -> None:
    services.seconds = 1.5
    with Services() as quick:
        config = TrackingConfig(mlflow=services.url, openlineage=f"{quick.url}/api/v1/lineage")
        results = list(send.report(record, config, str(tmp_path), limit=1.0))
    assert [one.received for one in results] == [False, True]
    assert "it took longer than 1 s" in results[0].text


def test_a_run_reports_however_it_ends(
    services: Services,
    everything: TrackingConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Runs of before are left alone; `runs --send` sends them, by their own configuration."""
    tracking = {"tracking": {"mlflow": services.url}}
    record = write_run(tmp_path, 1)
    configuration = record.configuration | tracking
    write_record(dataclasses.replace(record, configuration=configuration), str(tmp_path))

    def run(number: int, error: BaseException) -> None:
        with send.reporting(everything, str(tmp_path)):
            write_run(tmp_path, number, state="failed")
            raise error

    with pytest.raises(ValueError, match="later"):
        run(2, ValueError("later"))
    with pytest.raises(KeyboardInterrupt):
        run(3, KeyboardInterrupt())
    assert capsys.readouterr().out.count(" has run 2: ") == 3
    assert [run["tags"]["pipeline_run"] for run in services.runs.values()] == ["2"]
    assert local_runner.main(["runs", "--send", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"MLflow has run 1: {services.url}/")
    arguments = ["runs", "--send", "--output", str(tmp_path), "--tracking.openlineage"]
    assert local_runner.main([*arguments, "http://127.0.0.1:9"]) == 1
    said = capsys.readouterr().out
    assert said.count("OpenLineage has not received run") == 3
    assert said.count("Connection refused") == 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mlflow": "https://me:s3cret@host"}, "tracking.mlflow must not contain a user name"),
        ({"openlineage": "https://host/?key=s3cret"}, "must not contain a user name, a password"),
        ({"mlflow": "localhost:5000"}, "must be a URL such as http://localhost:5000"),
        ({"tokens": {"mlflow": "s3cret-token"}}, "is not the name of an environment variable"),
        ({"tokens": {"s3cret": "TOKEN"}}, "has an unknown service"),
    ],
)
def test_secrets_are_refused_unseen(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as error:
        TrackingConfig(**fields)
    assert "s3cret" not in str(error.value)
