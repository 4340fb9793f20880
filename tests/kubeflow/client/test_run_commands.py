"""`kfp_runner.py run`, `schedule`, `runs`, `logs` and `stop`, against a stub of the API server."""

import hashlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_def.kubeflow import run_commands
from pipeline_def.kubeflow.client.follow import follow
from tests.kubeflow.client.conftest import Say
from tests.kubeflow.client.kfp_server import CREATED, KfpServer, nodes

# Rows of two tasks.
CACHED, TRAINING = "ImageExampleGen SUCCEEDED 9 9", "Trainer RUNNING 20 -"
FAILED = "Trainer FAILED 10 500"


def test_a_run_is_started_with_its_options(
    server: KfpServer, compiled_file: Path, tmp_path: Path, say: Say
) -> None:
    server.token = "secret"
    (tmp_path / "token").write_text("secret\n")
    parameters = ("data=gs://other", "training_epochs=7", "min_accuracy=0.5")
    options = [text for parameter in parameters for text in ("--parameter", parameter)]
    options += ["--token-file", str(tmp_path / "token"), "--experiment", "flowers"]
    options += ["--run-name", "first", "--service-account", "runner"]
    status, said = say("run", *options)
    assert status == 0
    assert said.splitlines() == ["Run: run_id-1", f"{server.url}/#/runs/details/run_id-1"]
    [started], [version] = server.runs, server.versions
    given = ("run_id", "state", "created_at")
    assert {name: value for name, value in started.items() if name not in given} == {
        "display_name": "first",
        "experiment_id": "experiment_id-1",
        "pipeline_version_reference": {
            "pipeline_id": "pipeline_id-1",
            "pipeline_version_id": "pipeline_version_id-1",
        },
        "runtime_config": {
            "parameters": {"data": "gs://other", "training_epochs": 7, "min_accuracy": 0.5},
        },
        "service_account": "runner",
    }
    assert server.pipelines[0]["display_name"] == "images"
    assert server.experiments[0]["display_name"] == "flowers"
    assert [*yaml.safe_load_all(version["text"])] == [
        *yaml.safe_load_all(compiled_file.read_text())
    ]
    # A second run adds a version, named by time and content.
    assert say("run", *options[:-2])[0] == 0
    digest = hashlib.sha256(version["text"].encode()).hexdigest()[:8]
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-\d{{6}}-{digest}", server.versions[1]["display_name"])
    assert [v["pipeline_id"] for v in server.versions] == ["pipeline_id-1"] * 2
    assert "service_account" not in server.runs[1]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("run --parameter training_epochs=many", "=many: the value must be a NUMBER_INTEGER"),
        ("run --parameter epoch=1", "NAME is one of data, max_accuracy_drop"),
        ("run --parameter training_epochs=-5", "training.epochs is -5: it must be a whole number"),
        ("run --parameter min_accuracy=nan", "evaluation.min_accuracy is nan: it must be a fini"),
        ("run --parameter span=-2", "ingest.span is -2: it must be a whole number of at least 0"),
        ("schedule --cron='every night'", "--cron"),
        ("schedule --cron='0 3 * * * * *'", "--cron"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_sent(
    server: KfpServer, say: Say, argv: str, message: str
) -> None:
    status, said = say(*shlex.split(argv))
    [line] = said.splitlines()
    assert (status, message in line) == (2, True)
    assert server.requests == []


def wait(say: Say, monkeypatch: pytest.MonkeyPatch, *argv: str) -> tuple[int, list[str]]:
    """Follow a run without waiting; return the status and the lines after the run's page."""
    monkeypatch.setattr("pipeline_def.kubeflow.client.follow.time.sleep", lambda _: None)
    status, said = say("run", "--wait", *argv)
    return status, said.splitlines()[2:]


def test_each_change_of_a_task_is_written_once(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script.extend(
        [
            {"state": "PENDING"},
            nodes("RUNNING", "ImageExampleGen-driver RUNNING 1 -", "Trainer-driver PENDING 1 -"),
            *[nodes("RUNNING", CACHED, TRAINING)] * 2,
            # The run is over before its last task.
            nodes("SUCCEEDED", CACHED, TRAINING),
            nodes("SUCCEEDED", CACHED, "Trainer SUCCEEDED 20 332"),
        ]
    )
    status, lines = wait(say, monkeypatch)
    tasks = ["Trainer: PENDING", "ImageExampleGen: CACHED"]
    tasks += ["Trainer: RUNNING", "Trainer: SUCCEEDED after 312 s"]
    end = f"Run SUCCEEDED: {server.url}/#/runs/details/run_id-1"
    assert (status, lines) == (0, [*tasks, end])


SENTENCE = "Cannot reach the object store at http://store:9000 (EndpointConnectionError): check it."
LOG = f"""INFO Found span 0
Trainer: error: The first attempt failed.
Trainer: error: {SENTENCE}
I1122 04:06:17.1 launcher_v2.go:690] ExecutorOutput: {{}}
F1122 04:06:17.2 main.go:54] failed to execute component: exit status 2
time="2026-11-22T04:06:18.000Z" level=info msg="sub-process exited" argo=true error="<nil>"
Error: exit status 1
"""
KEPT = "minio://mlpipeline/v2/artifacts/images/run_id-1/logs/Trainer.txt"


@pytest.mark.parametrize(
    ("row", "log", "reason"),
    [
        (FAILED, LOG, SENTENCE.rstrip(".")),
        (FAILED, "", "the reason is in its log"),
        ("Trainer-driver FAILED 10 500", "", "its driver failed or was stopped"),
    ],
)
def test_a_failed_step_gives_its_own_reason(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch, row: str, log: str, reason: str
) -> None:
    """From the log that the step has kept in the object store."""
    server.script.append(nodes("FAILED", CACHED, row))
    server.kept = {KEPT: log} if log else {}
    status, lines = wait(say, monkeypatch)
    assert (status, lines[:2]) == (1, ["ImageExampleGen: CACHED", "Trainer: FAILED after 490 s"])
    assert lines[2].startswith(f"Run FAILED in the task Trainer: {reason}")
    assert re.search(r"; see http://\S+/#/runs/details/run_id-1$", lines[2])


@pytest.mark.parametrize(("failures", "status"), [(3, 0), (-1, 2)])
def test_an_unreachable_server_is_polled_again(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch, failures: int, status: int
) -> None:
    def start_failing(*run: Any) -> str:
        server.failures = failures
        return follow(*run)

    monkeypatch.setattr(run_commands, "follow", start_failing)
    server.script.append(nodes("SUCCEEDED", CACHED, "Trainer SUCCEEDED 20 20"))
    ended, lines = wait(say, monkeypatch)
    assert ended == status
    assert "The run continues; retrying every 10 s" in lines[0]
    assert ("could not read the run run_id-1 (500: " in lines[-1]) is (status == 2)


def test_ctrl_c_leaves_the_run_alone(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline_def.kubeflow.client.follow.time.sleep", interrupt)
    server.script.append(nodes("RUNNING", "ImageExampleGen RUNNING 10 -"))
    status, said = say("run", "--wait")
    assert (status, "ImageExampleGen: RUNNING\n" in said) == (130, True)
    assert "Stopped watching; the run continues in the cluster: http" in said
    assert not any(request.endswith(":terminate") for request in server.requests)


def test_a_schedule_from_its_beginning_to_its_end(server: KfpServer, say: Say) -> None:
    status, said = say("schedule", "--cron", "0 3 * * 1-5", "--name", "nightly")
    assert (status, said) == (
        0,
        "Schedule: nightly, 0 0 3 * * 1-5 (with seconds), recurring_run_id-1\n",
    )
    [row] = server.schedules
    # Kubeflow's parser would take the first of five fields for seconds.
    assert row["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * 1-5"}}
    # One at a time, and no run for each time that has passed: each takes the newest span.
    assert (row["mode"], row["max_concurrency"], row["no_catchup"]) == ("ENABLE", "1", True)
    assert row["pipeline_version_reference"]["pipeline_version_id"] == "pipeline_version_id-1"
    assert server.runs == []
    status, said = say("schedule", "--cron", "@every 6h", "--name", "nightly")
    assert (status, "The schedule nightly exists: remove it with" in said) == (2, True)
    assert len(server.versions) == 1
    assert say("schedule", "--cron", "30 0 3 * * *")[0] == 0
    assert server.schedules[1]["trigger"]["cron_schedule"]["cron"] == "30 0 3 * * *"
    status, said = say("schedule", "--list")
    assert [line.split()[0] for line in said.splitlines()] == ["Schedule", "nightly", "images"]
    begun = {"run_id": "nightly-1", "state": "RUNNING", "created_at": CREATED}
    known = {"experiment_id": "experiment_id-1", "recurring_run_id": "recurring_run_id-1"}
    server.runs.append(begun | known)
    status, said = say("schedule", "--remove", "nightly")
    # Kubernetes would delete the run in progress with its schedule.
    assert (status, "destroy its run nightly-1, which is in progress" in said) == (2, True)
    assert [each["status"] for each in server.schedules] == ["DISABLED", "ENABLED"]
    assert say("stop", "nightly-1")[0] == 0
    assert say("schedule", "--remove", "nightly")[0] == 2
    history = [{"state": "CANCELING", "update_time": "2026-11-23T06:35:58Z"}]
    server.runs[0] |= {"state": "FAILED", "state_history": history}
    assert "STOPPED" in say("runs")[1]
    assert say("schedule", "--remove", "nightly") == (0, "Removed: nightly\n")
    assert [each["display_name"] for each in server.schedules] == ["images"]
    status, said = say("schedule", "--remove", "nightly")
    assert (status, "no schedule nightly" in said) == (2, True)


def test_runs_are_listed_stopped_and_found_by_name_or_identifier(
    server: KfpServer, say: Say
) -> None:
    status, said = say("runs")
    assert (status, "There is no experiment images" in said) == (2, True)
    for name in ("first", "second"):
        assert say("run", "--run-name", name)[0] == 0
    server.runs[0] |= {"state": "SUCCEEDED", "finished_at": "2026-11-22T04:06:28Z"}
    status, said = say("runs")
    lines = [line.split() for line in said.splitlines()]
    assert [line[:3] for line in lines[1:]] == [
        ["run_id-2", "second", "PENDING"],
        ["run_id-1", "first", "SUCCEEDED"],
    ]
    assert lines[2][-4:] == ["10", "min", "0", "s"]
    newest = json.loads(say("runs", "--json")[1])
    assert [run["run_id"] for run in newest] == ["run_id-2", "run_id-1"]
    assert say("stop", "second") == (0, "Stopping: run_id-2\n")
    assert server.runs[1]["state"] == "CANCELING"
    assert say("stop", "first") == (0, "run_id-1 has already ended: SUCCEEDED\n")
    for wanted, message in (("run_id", "are 2 runs run_id"), ("third", "is no run third")):
        status, said = say("stop", wanted)
        assert (status, message in said) == (2, True)


def test_the_log_of_a_task_of_the_newest_run(server: KfpServer, say: Say) -> None:
    """As the step has kept it in the object store, however it ended."""
    say("run")
    server.kept = {KEPT: LOG, KEPT.replace("Trainer", "Evaluator-Pusher"): "INFO Pushing\n"}
    assert say("logs", "Trainer") == (0, LOG)
    assert say("logs", "Pusher") == (0, "INFO Pushing\n")
    assert "has no task Trainr. Did you mean 'Trainer'?" in say("logs", "Trainr")[1]
    server.kept.clear()
    status, said = say("logs", "Trainer")
    assert (status, "There is no log of Trainer: its step was cached, has not" in said) == (2, True)
    assert f"({KEPT}: " in said
    assert "kubectl --namespace kubeflow logs --prefix --selector pipeline/runid=run_id-1" in said


def test_an_installation_for_several_users(server: KfpServer, say: Say) -> None:
    """Each command needs a namespace."""
    server.multi_user = True
    for command in (("run",), ("runs",), ("schedule", "--cron", "@daily"), ("stop", "x")):
        status, said = say(*command)
        assert (status, "pass --namespace, as the cluster has several users" in said) == (2, True)
    assert say("run", "--namespace", "team-a")[0] == 0
    assert server.experiments[0]["namespace"] == server.pipelines[0]["namespace"] == "team-a"
    assert "run_id-1" in say("runs", "--namespace", "team-a")[1]
    server.script.append(nodes("FAILED", FAILED))
    private = KEPT.replace("/v2/", "/private-artifacts/team-a/v2/")
    for place in (KEPT, private):
        server.kept = {place: LOG}
        assert say("logs", "Trainer", "--namespace", "team-a") == (0, LOG)
