"""`kfp_runner.py run`, from the command line to a server that speaks Kubeflow's API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import kfp_runner
import local_runner
from pipeline_def.runs.record import read_records
from tests.kubeflow.check.test_spec_check import SPEC
from tests.kubeflow.client.kfp_server import KfpServer
from tests.kubeflow.client.test_kfp_client import node, step


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A small specification with parameters of three kinds."""
    kinds = {"data": ("STRING", "gs://b"), "epochs": ("NUMBER_INTEGER", 5)}
    kinds |= {"rate": ("NUMBER_DOUBLE", 0.1), "flip": ("BOOLEAN", False)}
    document = json.loads(json.dumps(SPEC))
    document["root"]["inputDefinitions"]["parameters"] = {
        name: {"parameterType": kind, "defaultValue": value}
        for name, (kind, value) in kinds.items()
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def run(server: KfpServer, spec: Path, *argv: str) -> int:
    own = ("--endpoint", server.url, "--spec", str(spec), "--output", str(spec.parent / "out"))
    return kfp_runner.main(["run", *own, *argv])


def test_a_run_is_started_with_its_parameters(
    server: KfpServer, spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.token = "secret"
    (tmp_path / "token").write_text("secret\n")
    parameters = ("data=gs://other", "epochs=7", "rate=0.5", "flip=true")
    options = [text for parameter in parameters for text in ("--parameter", parameter)]
    options += ["--token-file", str(tmp_path / "token"), "--experiment", "flowers"]
    options += ["--run-name", "first", "--pipeline-root", "minio://b/root"]
    assert run(server, spec, *options) == 0
    [started], [version] = server.runs, server.versions
    assert started["display_name"] == "first"
    assert started["runtime_config"] == {
        "parameters": {"data": "gs://other", "epochs": 7, "rate": 0.5, "flip": True},
        "pipeline_root": "minio://b/root",
    }
    assert server.pipelines[0]["display_name"] == "images"
    assert server.experiments[0]["display_name"] == "flowers"
    assert version["text"] == spec.read_text()
    out = capsys.readouterr().out.splitlines()
    assert out == ["Run: run_id-1", f"{server.url}/#/runs/details/run_id-1"]


def test_without_the_cache_every_step_runs(server: KfpServer, spec: Path) -> None:
    assert run(server, spec, "--no-cache") == 0
    [version] = server.versions
    [document] = yaml.safe_load_all(version["text"])
    for task in document["root"]["dag"]["tasks"].values():
        assert task["cachingOptions"] == {"enableCache": False}


@pytest.mark.parametrize(("state", "status"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELED", 1)])
def test_the_status_says_how_the_run_ended(
    server: KfpServer, spec: Path, capsys: pytest.CaptureFixture[str], state: str, status: int
) -> None:
    server.script.append(step(state))
    assert run(server, spec, "--wait") == status
    assert f"Run {state}" in capsys.readouterr().out


def test_the_run_is_listed_beside_local_ones(
    server: KfpServer,
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    done, runs = node("Gen", "SUCCEEDED", 5, 65), node("Train", "RUNNING", 70)
    failed = node("Train", "FAILED", 70, 100, error={"message": "No memory."})
    server.script += [step("RUNNING", done, runs), step("FAILED", done, failed)]
    assert run(server, spec, "--parameter", "epochs=7", "--wait") == 1
    assert run(server, spec) == 0
    followed, started = read_records(str(spec.parent / "out"))
    assert (followed.runner, followed.pipeline, followed.state) == ("kubeflow", "images", "failed")
    assert (followed.error, followed.url) == ("No memory.", f"{server.url}/#/runs/details/run_id-1")
    assert {name: (s.state, s.seconds) for name, s in followed.steps.items()} == {
        "Gen": ("done", 60.0),
        "Train": ("failed", 30.0),
    }
    assert followed.configuration == {"data": "gs://b", "epochs": 7, "rate": 0.1, "flip": False}
    assert followed.versions["image"] == "r/i:1"
    assert (started.state, started.steps, started.ended) == ("running", {}, None)
    capsys.readouterr()
    assert local_runner.main(["runs", "--output", str(spec.parent / "out")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "failed at" in text
    assert "epochs 7 → 5" in text
    assert "on Kubeflow" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--parameter", "epochs=many"), "epochs=many: the value must be a NUMBER_INTEGER"),
        (("--parameter", "flip=1"), "flip=1: the value must be a BOOLEAN"),
        (("--parameter", "epoch=1"), "the names are data, epochs, flip, rate"),
        (("--parameter", "epochs"), "write NAME=VALUE"),
        (("--spec", "/none.yaml"), "Cannot read /none.yaml: No such file or directory"),
        (("--output", "/dev/null/x"), "Cannot write to /dev/null/x"),
        (("--target", "vertex"), "--project is missing: --target vertex needs it"),
        (
            ("--target", "vertex", "--project", "p", "--region", "r"),
            "--pipeline-root is missing: Vertex AI needs a gs:// folder",
        ),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_sent(
    server: KfpServer,
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    argv: tuple[str, ...],
    message: str,
) -> None:
    assert run(server, spec, *argv) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert server.requests == []


def test_what_the_cluster_would_refuse_is_not_uploaded(
    server: KfpServer, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec.write_text(spec.read_text().replace("2.1.0", "2.0.0"))
    assert run(server, spec) == 2
    assert "[schema-version]" in capsys.readouterr().err
    assert server.requests == []


@pytest.mark.slow
def test_a_token_that_is_refused_and_a_server_that_hangs(
    server: KfpServer,
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.token = "the right one"
    monkeypatch.setenv("KFP_TOKEN", "a-wrong-one")
    assert run(server, spec) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "KFP_TOKEN" in line
    assert "a-wrong-one" not in line
    server.hang = 3.0
    assert run(server, spec, "--timeout", "1") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "within 1 s" in line
