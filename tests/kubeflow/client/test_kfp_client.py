"""The client of open-source Kubeflow Pipelines, against a stub of its API server."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.contract.errors import UserError
from pipeline_def.kubeflow.client import uploads
from pipeline_def.kubeflow.client.connection import Connection
from pipeline_def.kubeflow.client.open_source_client import follow_run, start_run
from pipeline_def.kubeflow.client.run import RunRequest, RunView, StartedRun
from tests.kubeflow.client.argo_nodes import WORKFLOW, Task, identifier, listed
from tests.kubeflow.client.kfp_server import KfpServer

TOKEN = "eyJ-very-secret"
SPEC = {
    "pipelineInfo": {"name": "image-pipeline"},
    "root": {"dag": {"tasks": {"trainer": {"cachingOptions": {"enableCache": True}}}}},
    "components": {"comp-loop": {"dag": {"tasks": {"inner": {}}}}, "comp-trainer": {}},
}


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump_all([SPEC, {"platforms": {"kubernetes": {}}}]))
    return str(path)


def start(
    connection: Connection | KfpServer,
    spec: str,
    *,
    pipeline: str = "image-pipeline",
    experiment: str = "flowers",
    version: str | None = None,
    **changes: Any,
) -> StartedRun:
    if isinstance(connection, KfpServer):
        connection = Connection(connection.url, timeout=5.0)
    documents = list(yaml.safe_load_all(Path(spec).read_text()))
    documents[0]["pipelineInfo"]["name"] = pipeline
    fields = {"path": spec, "documents": documents, "name": "first", "parameters": {}}
    request = RunRequest(**(fields | changes))
    return start_run(connection, request, experiment=experiment, version=version)


def sentence(connection: Connection | KfpServer, spec: str, **changes: Any) -> str:
    """The message of the failure, which is one sentence on one line without the token."""
    with pytest.raises(UserError) as caught:
        start(connection, spec, **changes)
    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    assert TOKEN not in text
    assert len(text) < 700
    return text


def test_a_new_pipeline_gets_a_version_and_a_run(server: KfpServer, spec: str) -> None:
    parameters = {"steps": 300, "rate": 0.5, "name": "300", "augment": True, "empty": ""}
    started = start(
        server,
        spec,
        version="v1",
        parameters=parameters,
        pipeline_root="s3://bucket/root",
        service_account="runner",
    )
    assert started == StartedRun("run_id-1", f"{server.url}/#/runs/details/run_id-1", "v1")
    (version,), (run,) = server.versions, server.runs
    assert version["display_name"] == "v1"
    assert version["text"] == Path(spec).read_text()
    assert run["display_name"] == "first"
    assert run["experiment_id"] == "experiment_id-1"
    assert run["pipeline_version_reference"] == {
        "pipeline_id": "pipeline_id-1",
        "pipeline_version_id": "pipeline_version_id-1",
    }
    assert json.dumps(run["runtime_config"]["parameters"]) == json.dumps(parameters)
    assert run["runtime_config"]["pipeline_root"] == "s3://bucket/root"
    assert run["service_account"] == "runner"


def test_a_second_run_adds_a_version_named_by_time_and_content(
    server: KfpServer, spec: str
) -> None:
    start(server, spec, version="v1")
    started = start(server, spec)
    digest = hashlib.sha256(Path(spec).read_bytes()).hexdigest()[:8]
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{digest}", started.version or "")
    assert len(server.pipelines) == len(server.experiments) == 1
    assert [v["pipeline_id"] for v in server.versions] == ["pipeline_id-1"] * 2
    assert server.runs[1]["pipeline_version_reference"]["pipeline_version_id"].endswith("-2")
    assert "pipeline_root" not in server.runs[1]["runtime_config"]
    assert "service_account" not in server.runs[1]


def test_a_version_name_is_used_once(server: KfpServer, spec: str) -> None:
    start(server, spec, version="v1")
    said = sentence(server, spec, version="v1")
    assert "already has a version v1: give another --pipeline-version" in said
    assert len(server.runs) == 1


def test_the_same_content_in_the_same_second_is_one_version(
    server: KfpServer, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_version_name", lambda _: "20260101-000000-abcdef01")
    assert start(server, spec).version == start(server, spec).version
    assert len(server.versions) == 1
    assert len(server.runs) == 2


def test_names_are_found_again_whatever_is_in_them(server: KfpServer, spec: str) -> None:
    names = {"pipeline": 'a+b 50% "c"', "experiment": "1+1=2&more", "version": "v1.0+dev"}
    start(server, spec, **names)
    assert "already has a version v1.0+dev" in sentence(server, spec, **names)
    start(server, spec, **(names | {"version": "v2"}))
    assert len(server.pipelines) == len(server.experiments) == 1


def test_the_namespace_goes_everywhere(server: KfpServer, spec: str) -> None:
    server.multi_user = True
    assert "pass --namespace" in sentence(server, spec)
    start(Connection(server.url, namespace="team-a", timeout=5.0), spec)
    assert server.pipelines[-1]["namespace"] == server.experiments[-1]["namespace"] == "team-a"


@pytest.mark.parametrize("cache", [True, False])
def test_the_cache_setting_goes_into_what_is_uploaded(
    server: KfpServer, spec: str, cache: bool
) -> None:
    start(server, spec, cache=cache)
    sent, platform = yaml.safe_load_all(server.versions[0]["text"])
    option = {"cachingOptions": {"enableCache": cache}}
    assert sent["root"]["dag"]["tasks"] == {"trainer": option}
    assert sent["components"]["comp-loop"]["dag"]["tasks"] == {"inner": option}
    assert sent["components"]["comp-trainer"] == {}
    assert platform == {"platforms": {"kubernetes": {}}}


def test_nothing_is_printed_or_kept(
    server: KfpServer,
    spec: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    start(server, spec)
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("where", ["file", "variable", "pod"])
def test_the_token_is_sent(
    server: KfpServer, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    server.token = TOKEN
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    if where == "variable":
        monkeypatch.setenv("KFP_TOKEN", TOKEN)
    if where == "pod":
        monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(file))
    named = str(file) if where == "file" else None
    start(Connection(server.url, token_file=named, timeout=5.0), spec)
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {TOKEN}"}


def test_a_token_that_is_missing_or_wrong(
    server: KfpServer, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = "another"
    assert "--token-file or in KFP_TOKEN" in sentence(server, spec)
    monkeypatch.setenv("KFP_TOKEN", TOKEN)
    # The stub's message quotes the token, as a server's may.
    assert "does not accept the token from the variable KFP_TOKEN" in sentence(server, spec)
    monkeypatch.setenv("KFP_TOKEN", f"{TOKEN} {TOKEN}")
    assert "There is no token in the variable KFP_TOKEN" in sentence(server, spec)
    missing = Connection(server.url, token_file=str(tmp_path / "none"))
    assert "cannot be read: No such file" in sentence(missing, spec)


def test_a_caller_who_may_not(
    server: KfpServer, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.forbidden = "in namespace team-b"
    monkeypatch.setenv("KFP_TOKEN", TOKEN)
    connection = Connection(server.url, namespace="team-b", timeout=5.0)
    text = sentence(connection, spec)
    assert "does not let the token from the variable KFP_TOKEN list experiments" in text
    assert "in the namespace team-b" in text


def test_an_upload_refused_in_the_words_of_its_text(server: KfpServer, spec: str) -> None:
    server.refuse_spec = (
        "Failed to create a pipeline version: InvalidInputError: unknown field 'rooot'"
    )
    text = sentence(server, spec)
    assert "refused to store the specification" in text
    assert "unknown field 'rooot'" in text
    server.refuse_spec = "Failed: PermissionDenied: User 'x' is not authorized"
    assert "does not let a caller without a token store" in sentence(server, spec)
    assert server.runs == []


def test_a_login_page_is_not_taken_for_an_answer(server: KfpServer, spec: str) -> None:
    server.login_page = True
    assert "login page" in sentence(server, spec)
    server.login_page = False
    server.redirect = "https://dex.example.com/auth?state=hush"
    text = sentence(server, spec)
    assert "https://dex.example.com instead" in text
    assert "hush" not in text


def test_an_address_without_the_api(server: KfpServer, spec: str) -> None:
    server.plain_404 = True
    assert "no Kubeflow Pipelines v2 API" in sentence(server, spec)


def test_a_server_in_trouble(server: KfpServer, spec: str) -> None:
    server.failures = 1
    assert "could not list experiments (500: " in sentence(server, spec)
    start(server, spec)


def test_a_server_that_hangs_is_given_up_within_the_timeout(server: KfpServer, spec: str) -> None:
    server.hang = 4.0
    begin = time.monotonic()
    text = sentence(Connection(server.url, timeout=0.2), spec)
    assert time.monotonic() - begin < 3
    assert "did not answer within 0.2 s" in text


def test_a_dead_address(spec: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.monotonic()
    assert "connection refused" in sentence(Connection(f"http://127.0.0.1:{port}"), spec)
    assert time.monotonic() - begin < 3
    assert "http://nowhere.invalid (" in sentence(Connection("http://nowhere.invalid"), spec)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("localhost:8080", "it needs a URL"),
        ("http://", "it needs a URL"),
        ("http://host:port", "not a URL"),
        (f"https://me:{TOKEN}@host", "must not hold a password"),
        (f"https://host/?token={TOKEN}", "must not hold a password or a query"),
        (f"me:{TOKEN}@host", "must not hold a password"),
        ("https://" + "a" * 70 + ".example", "check --endpoint"),
    ],
)
def test_a_wrong_endpoint(spec: str, endpoint: str, expected: str) -> None:
    with pytest.raises(UserError, match=re.escape(expected)) as caught:
        start(Connection(endpoint, timeout=1.0), spec)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("http://host:8080/", "http://host:8080"),
        ("https://host/_/pipeline/#/runs", "https://host/pipeline"),
        ("https://host/pipeline/#/runs/details/1", "https://host/pipeline"),
    ],
)
def test_an_endpoint_copied_from_the_browser(endpoint: str, address: str) -> None:
    assert Connection(endpoint).address() == address


def test_the_page_may_have_another_address(
    server: KfpServer, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "https://ui.example.com/")
    assert start(server, spec).url == "https://ui.example.com/#/runs/details/run_id-1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    paths = str(folder / "cert.pem"), str(folder / "key.pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command.split(), "-out", paths[0], "-keyout", paths[1], *names],
        check=True,
        capture_output=True,
    )
    return paths


def test_tls(certificate: tuple[str, str], spec: str, server: KfpServer) -> None:
    with KfpServer(tls=certificate) as secure:
        start(Connection(secure.url, ca_cert=certificate[0], timeout=5.0), spec)
        assert "--ca-cert" in sentence(Connection(secure.url, timeout=5.0), spec)
        other_name = secure.url.replace("localhost", "127.0.0.1")
        other = Connection(other_name, ca_cert=certificate[0], timeout=5.0)
        assert "cannot be verified" in sentence(other, spec)
        no_pem = Connection(secure.url, ca_cert=spec, timeout=5.0)
        assert "no PEM certificate" in sentence(no_pem, spec)
        plain = Connection(secure.url.replace("https", "http"), timeout=5.0)
        assert "http" in sentence(plain, spec)
    no_tls = Connection(server.url.replace("http", "https"), timeout=5.0)
    assert "does not speak TLS" in sentence(no_tls, spec)
    with pytest.raises(UserError, match="there is no such file"):
        Connection(server.url, ca_cert="/none.pem")


def node(name: str, state: str, start: int = 0, end: int | None = None, **more: Any) -> Any:
    """A task as the backend 2.14.3 reports it; what has not ended did so in the year 1."""
    return {
        "task_id": f"id of {name} {more.pop('of', '')}",
        "display_name": name,
        "state": state,
        "start_time": _stamp(start),
        "end_time": "0001-01-01T00:00:00Z" if end is None else _stamp(end),
    } | more


def _stamp(second: int) -> str:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(0, second)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def step(state: str, *nodes: Any) -> dict[str, Any]:
    workflow = node("image-pipeline-x7k2p", "RUNNING")
    workflow["child_tasks"] = [{"pod_name": "image-pipeline-x7k2p-123456"}]
    frame = [workflow, node("root-driver", "SUCCEEDED", 0, 5), node("root", "RUNNING", 5)]
    return {"state": state, "run_details": {"task_details": [*frame, *nodes]}}


@pytest.fixture
def watched(server: KfpServer, spec: str) -> KfpServer:
    start(server, spec)
    return server


def follow(server: KfpServer) -> tuple[str, list[str]]:
    lines: list[str] = []
    connection = Connection(server.url, timeout=5.0)
    state = follow_run(connection, "run_id-1", lines.append, interval=0.01)
    return state, lines


def test_follow_shows_each_change_of_a_task_once(watched: KfpServer) -> None:
    ingest = [
        node("gen-driver", "SUCCEEDED", 5, 9),
        node("gen", "SUCCEEDED", 9, 9),
        node("executor", "SKIPPED", 9, 9, of="gen"),
    ]
    watched.script.extend(
        [
            {"state": "PENDING"},
            {"state": "RUNNING", "run_details": {"task_details": [node("image-x7k2p", "RUNNING")]}},
            step("RUNNING", node("gen-driver", "RUNNING", 5)),
            step("RUNNING", *ingest, node("trainer", "RUNNING", 20)),
            step("RUNNING", *ingest, node("trainer", "RUNNING", 20)),
            step("SUCCEEDED", *ingest, node("trainer", "RUNNING", 20)),
            step(
                "SUCCEEDED",
                *ingest,
                node("trainer", "SUCCEEDED", 20, 332),
                node("executor", "SUCCEEDED", 20, 332, of="trainer"),
                node("pusher", "SKIPPED", 332, 332),
            ),
        ]
    )
    state, lines = follow(watched)
    assert state == "SUCCEEDED"
    assert lines == [
        "gen: CACHED",
        "trainer: RUNNING",
        "trainer: SUCCEEDED after 312 s",
        "pusher: SKIPPED",
        f"Run SUCCEEDED: {watched.url}/#/runs/details/run_id-1",
    ]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            [node("trainer", "FAILED", 1, 9, error={"code": 2, "message": "out of\nmemory."})],
            "Run FAILED in the task trainer: out of memory; see ",
        ),
        (
            [node("trainer", "FAILED", 1, 9)],
            "Run FAILED in the task trainer: the reason is in its log; see ",
        ),
        (
            [node("trainer-driver", "FAILED", 1, 9)],
            "Run FAILED in the task trainer (its preparation): the reason is in its log; see ",
        ),
    ],
)
def test_follow_names_the_failed_task(watched: KfpServer, nodes: list[Any], expected: str) -> None:
    later = node("pusher", "RUNTIME_STATE_UNSPECIFIED")
    watched.script.append(step("FAILED", *nodes, later))
    state, lines = follow(watched)
    assert state == "FAILED"
    assert lines[-1] == f"{expected}{watched.url}/#/runs/details/run_id-1"
    assert not any("pusher" in line for line in lines)


LOOKUP = "ImageExampleGen-lookup"
SENTENCE = "Cannot reach the object store at http://store:9000 (EndpointConnectionError): check it."
LOG = f"""INFO Found span 0
{LOOKUP}: error: {SENTENCE}
I1122 04:06:17.1 launcher_v2.go:690] ExecutorOutput: {{}}
F1122 04:06:17.2 main.go:54] failed to execute component: exit status 2
time="2026-11-22T04:06:18.000Z" level=info msg="sub-process exited" argo=true error="<nil>"
Error: exit status 1
"""


def pod(template: str) -> str:
    name = f"{WORKFLOW}(0).root(0).{LOOKUP}(0).executor(0)"
    return f"-{template}-".join(identifier(name).rsplit("-", 1))


@pytest.mark.parametrize("place", ["archive", "interface", "server", "retried pod", "nowhere"])
def test_a_failed_step_says_why_itself(watched: KfpServer, place: str) -> None:
    """From Argo's artifact, else from the pod, through the interface or the API server."""
    failed = Task("FAILED", 10, 500)
    watched.script.append(listed({LOOKUP: failed, "Trainer": Task("")}, "FAILED"))
    watched.interface = place != "server"
    if place == "archive":
        watched.archive = {identifier(f"{WORKFLOW}(0).root(0).{LOOKUP}(0).executor(0)"): LOG}
    elif place != "nowhere":
        retry = "retry-" if place == "retried pod" else ""
        watched.pods = {pod(f"{retry}system-container-impl"): LOG}
    seen: list[RunView] = []
    lines: list[str] = []
    follow_run(Connection(watched.url), "run_id-1", lines.append, see=seen.append, interval=0.01)
    reason = "the reason is in its log" if place == "nowhere" else SENTENCE.rstrip(".")
    assert lines[0] == f"{LOOKUP}: FAILED after 490 s"
    assert lines[1].startswith(f"Run FAILED in the task {LOOKUP}: {reason}; see http")
    assert [task.error for task in seen[-1].tasks] == ["" if place == "nowhere" else SENTENCE, ""]


def test_a_failed_driver_says_why_itself(watched: KfpServer) -> None:
    watched.script.append(listed({"a": Task("", driver="FAILED")}, "FAILED"))
    log = "I1122 main.go:1] start\nF1122 04:06:17.2 1 main.go:79] KFP driver: no such input: data\n"
    watched.archive = {identifier(f"{WORKFLOW}(0).root(0).a-driver(0)"): log}
    _, lines = follow(watched)
    assert "Run FAILED in the task a (its preparation): no such input: data; see" in lines[-1]


def test_a_pod_that_does_not_start_is_worth_a_word_once(
    watched: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(_seconds: float) -> None:
        nonlocal now
        now += 30.0

    monkeypatch.setattr("pipeline_def.kubeflow.client.run_follower.time.sleep", sleep)
    monkeypatch.setattr("pipeline_def.kubeflow.client.run_follower.time.monotonic", lambda: now)
    waits = listed({"Trainer": Task("RUNNING", attempts=("PENDING",)), "Gen": Task("RUNNING", 50)})
    watched.script.extend(
        [*[waits] * 8, listed({"Trainer": Task("SUCCEEDED", 10, 300)}, "SUCCEEDED")]
    )
    lines: list[str] = []
    follow_run(Connection(watched.url, namespace="team-a"), "run_id-1", lines.append)
    [told] = [line for line in lines if "pending" in line]
    assert told.startswith("Trainer has been pending for 120 s: its pod may wait for its image")
    command = "kubectl --namespace team-a describe pods --selector pipeline/runid=run_id-1"
    assert f"`{command}` tells" in told
    assert lines == ["Gen: RUNNING", told, "Trainer: SUCCEEDED after 290 s", lines[-1]]


def test_follow_survives_a_few_failed_polls(watched: KfpServer) -> None:
    watched.script.append(step("SUCCEEDED"))
    watched.failures = 3
    state, lines = follow(watched)
    assert state == "SUCCEEDED"
    assert len(lines) == 2
    assert "The run goes on; asking again" in lines[0]


def test_follow_gives_up_after_a_limit(watched: KfpServer) -> None:
    watched.failures = -1
    with pytest.raises(UserError, match="11 polls in a row failed, the run itself goes on"):
        follow(watched)


def test_follow_ends_at_once_without_rights_or_run(watched: KfpServer) -> None:
    with pytest.raises(UserError, match="Run none not found"):
        follow_run(Connection(watched.url), "none", print, interval=0.01)
    watched.forbidden = "any more"
    with pytest.raises(UserError, match="read the run"):
        follow(watched)


def test_ctrl_c_ends_the_following_and_not_the_run(
    watched: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    watched.script.append(step("RUNNING", node("trainer", "RUNNING", 1)))
    monkeypatch.setattr("pipeline_def.kubeflow.client.run_follower.time.sleep", interrupted)
    state, lines = follow(watched)
    assert state == "RUNNING"
    assert lines[-1].startswith("Stopped watching; the run goes on in the cluster: http")
