"""`kfp_runner.py schedule`, `runs`, `logs` and `stop`, and several users, against the stub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from rich.console import Console

import kfp_runner
from pipeline_def.kubeflow.client import schedule
from pipeline_def.kubeflow.client.live_table import LiveTable
from pipeline_def.kubeflow.client.workflow_tasks import run_view
from tests.kubeflow.check.test_spec_check import SPEC
from tests.kubeflow.client.argo_nodes import WORKFLOW, Task, identifier, listed
from tests.kubeflow.client.kfp_server import KfpServer

Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(server: KfpServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Give a command to the server; return its status, and what it printed and complained."""
    spec = tmp_path / "pipeline.yaml"
    spec.write_text(yaml.safe_dump(SPEC))

    def run(*argv: str) -> tuple[int, str]:
        more = ["--endpoint", server.url]
        if argv[0] in ("run", "schedule"):
            more += ["--spec", str(spec)]
        if argv[0] == "run":
            more += ["--output", str(tmp_path / "out")]
        capsys.readouterr()
        status = kfp_runner.main([*argv, *more])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


def test_a_schedule_from_its_beginning_to_its_end(server: KfpServer, say: Say) -> None:
    status, said = say("schedule", "--cron", "0 3 * * 1-5", "--name", "nightly", "--no-cache")
    assert (status, said) == (
        0,
        "Schedule: nightly, 0 0 3 * * 1-5 (with seconds), recurring_run_id-1\n",
    )
    [made], [version] = server.schedules, server.versions
    assert made["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * 1-5"}}
    # One at a time, and no run for each time that has passed: each takes the newest span.
    assert (made["mode"], made["max_concurrency"], made["no_catchup"]) == ("ENABLE", "1", True)
    assert made["pipeline_version_reference"]["pipeline_version_id"] == "pipeline_version_id-1"
    assert "enableCache: false" in version["text"]
    assert server.runs == []
    status, said = say("schedule", "--cron", "@every 6h", "--name", "nightly")
    assert status == 2
    assert "There is a schedule nightly already: remove it with" in said
    assert len(server.versions) == 1
    assert say("schedule", "--cron", "@every 6h")[0] == 0
    status, said = say("schedule", "--list")
    assert [line.split()[0] for line in said.splitlines()] == ["Schedule", "nightly", "images"]
    assert say("schedule", "--remove", "nightly") == (0, "Removed: nightly\n")
    assert [one["display_name"] for one in server.schedules] == ["images"]
    status, said = say("schedule", "--remove", "nightly")
    assert status == 2
    assert "no schedule nightly" in said


@pytest.mark.parametrize(
    ("text", "cron"),
    [
        ("0 3 * * *", "0 0 3 * * *"),
        ("*/15 8-18 * * MON-FRI", "0 */15 8-18 * * MON-FRI"),
        ("30 0 3 * * *", "30 0 3 * * *"),
        ("@daily", "@daily"),
    ],
)
def test_the_first_of_five_fields_are_minutes(text: str, cron: str) -> None:
    """Kubeflow's parser would take them for seconds."""
    assert schedule.read_cron(text) == cron


@pytest.mark.parametrize("text", ["", "3", "every night", "0 3 * *", "0 3 * * * * *", "@often"])
def test_what_is_no_cron_expression(server: KfpServer, say: Say, text: str) -> None:
    status, said = say("schedule", "--cron", text) if text else say("schedule", "--cron=")
    assert status == 2
    assert "--cron" in said
    assert server.requests == []


def test_runs_are_listed_stopped_and_found_by_name_or_identifier(
    server: KfpServer, say: Say
) -> None:
    status, said = say("runs")
    assert status == 2
    assert "There is no experiment images" in said
    for name in ("first", "second"):
        assert say("run", "--run-name", name)[0] == 0
    server.runs[0] |= {
        "state": "SUCCEEDED",
        "created_at": "2026-11-22T03:56:28Z",
        "finished_at": "2026-11-22T04:06:28Z",
    }
    status, said = say("runs")
    lines = [line.split() for line in said.splitlines()]
    assert [line[:3] for line in lines[1:]] == [
        ["run_id-2", "second", "PENDING"],
        ["run_id-1", "first", "SUCCEEDED"],
    ]
    assert lines[2][-4:] == ["10", "min", "0", "s"]
    newest = json.loads(say("runs", "--json", "--number", "1")[1])
    assert [run["run_id"] for run in newest] == ["run_id-2"]
    assert say("stop", "second") == (0, "Stopping: run_id-2\n")
    assert server.runs[1]["state"] == "CANCELING"
    assert say("stop", "first") == (0, "run_id-1 has ended already: SUCCEEDED\n")
    for wanted, found in (("run_id", "2 runs run_id"), ("third", "no run third")):
        status, said = say("stop", wanted)
        assert status == 2
        assert found in said


def test_the_log_of_a_task_of_the_newest_run(server: KfpServer, say: Say) -> None:
    say("run")
    tasks = {"Trainer": Task("RUNNING"), "Gen": Task("CACHED"), "Pusher": Task("")}
    server.script.append(listed(tasks))
    node = identifier(f"{WORKFLOW}(0).root(0).Trainer(0).executor(0)")
    server.pods["-system-container-impl-".join(node.rsplit("-", 1))] = "epoch 1\nepoch 2"
    assert say("logs", "Trainer") == (0, "epoch 1\nepoch 2\n")
    server.pods.clear()
    status, said = say("logs", "Trainer")
    assert (status, "login" in said) == (2, False)
    assert "is not there: its pod has not started or is gone" in said
    assert f"artifact {node} not found" in said
    for task, message in (
        ("Gen", "Gen has no log in the run run_id-1: it is CACHED"),
        ("Pusher", "Pusher has no log in the run run_id-1: it is not begun"),
        ("Train", "has no task Train: its tasks are Gen, Pusher, Trainer"),
    ):
        status, said = say("logs", task)
        assert status == 2
        assert message in said


def test_an_installation_for_several_users(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace is needed, and only one's own will do, for each command."""
    server.multi_user, server.token = True, "right"
    server.members = {server.user: {"team-a"}}
    status, said = say("run")
    assert (status, "does not accept a caller without a token" in said) == (2, True)
    monkeypatch.setenv("KFP_TOKEN", server.token)
    for command in (("run",), ("runs",), ("schedule", "--cron", "@daily"), ("stop", "x")):
        status, said = say(*command)
        assert (status, "pass --namespace, as the cluster has several users" in said) == (2, True)
        status, said = say(*command, "--namespace", "team-b")
        assert status == 2
        assert "does not let the token from" in said
        assert "check --namespace and the caller's rights in the namespace team-b" in said
    own = ("--namespace", "team-a")
    server.script.append(listed({"Gen": Task("SUCCEEDED", 10, 30)}, "SUCCEEDED"))
    status, said = say("run", "--wait", *own)
    assert (status, "Gen: SUCCEEDED after 20 s" in said) == (0, True)
    assert say("schedule", "--cron", "@daily", *own)[0] == 0
    assert server.experiments[0]["namespace"] == server.pipelines[0]["namespace"] == "team-a"
    assert "run_id-1" in say("runs", *own)[1]
    assert say("stop", "run_id-1", *own)[0] == 0
    assert server.token not in json.dumps([server.runs, server.schedules, server.versions])


def test_on_a_terminal_a_run_is_followed_as_a_table_and_ctrl_c_leaves_it_alone(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(width=100, force_terminal=True, color_system=None, record=True)
    monkeypatch.setattr("pipeline_def.kubeflow.client.submission.Console", lambda **_: console)
    server.script.append(listed({"Gen": Task("SUCCEEDED", 10, 95)}, "SUCCEEDED"))
    assert say("run", "--wait")[0] == 0
    shown = " ".join(console.export_text().split())
    assert "Task, 1 of 1 ended State Time Gen SUCCEEDED 1 min 25 s" in shown
    assert "Gen: SUCCEEDED" not in shown
    assert "Run SUCCEEDED: http" in shown

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline_def.kubeflow.client.run_follower.time.sleep", interrupt)
    server.script.append(listed({"Gen": Task("RUNNING", 10)}))
    server.script.popleft()
    assert say("run", "--wait")[0] == 130
    assert "the run goes on in the cluster" in console.export_text()
    assert not any(request.endswith(":terminate") for request in server.requests)


def test_the_table_on_a_terminal() -> None:
    console = Console(width=80, force_terminal=True, color_system=None, record=True)
    table = LiveTable(console)
    done, waits = Task("SUCCEEDED", 10, 95), Task("")
    tasks = {
        "Gen": done,
        "Stats": Task("CACHED", 95),
        "Trainer": Task("RUNNING", 96),
        "Push": waits,
    }
    table.see(run_view(listed(tasks)))
    table.write("a note")
    console.print(table.render())
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert lines == [
        "a note",
        "Task, 2 of 4 ended State Time",
        "Gen SUCCEEDED 1 min 25 s",
        "Stats CACHED",
        "Trainer RUNNING 0.0 s",
        "Push waiting",
    ]
