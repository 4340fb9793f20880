"""Requests to open-source Kubeflow Pipelines, and one sentence for each way they fail."""

import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.contract.errors import UserError
from pipeline_def.kubeflow.client.api import Api, Connection
from pipeline_def.kubeflow.client.run import RunRequest, StartedRun
from pipeline_def.kubeflow.client.runs import start_run
from tests.kubeflow.client.kfp_server import LOGIN, KfpServer, Refusal, gateway_error, nodes

TOKEN = "eyJ-very-secret"


def start(
    connection: Connection | KfpServer,
    spec: Path,
    *,
    pipeline: str = "images",
    experiment: str = "flowers",
) -> StartedRun:
    if isinstance(connection, KfpServer):
        connection = Connection(connection.url, timeout=5.0)
    documents = list(yaml.safe_load_all(spec.read_text()))
    documents[0]["pipelineInfo"]["name"] = pipeline
    with Api(connection) as api:
        return start_run(api, RunRequest(documents, "first", {}, experiment=experiment))


def sentence(connection: Connection | KfpServer, spec: Path) -> str:
    """The error message: one sentence on one line, without the token."""
    with pytest.raises(UserError) as caught:
        start(connection, spec)
    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    assert TOKEN not in text
    assert len(text) < 700
    return text


def test_names_are_found_again_whatever_is_in_them(
    server: KfpServer, spec: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        start(server, spec, pipeline='a+b 50% "c"', experiment="1+1=2&more")
    assert len(server.pipelines) == len(server.experiments) == 1
    assert len(server.runs) == 2
    # The SDK's own client would print links.
    assert capfd.readouterr() == ("", "")


def test_the_token_is_sent(
    server: KfpServer, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = TOKEN
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    start(Connection(server.url, token_file=str(file), timeout=5.0), spec)
    monkeypatch.setenv("KFP_TOKEN", TOKEN)
    start(Connection(server.url, timeout=5.0), spec)
    monkeypatch.delenv("KFP_TOKEN")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(file))
    start(Connection(server.url, timeout=5.0), spec)
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {TOKEN}"}


def test_a_token_that_is_missing_or_wrong(
    server: KfpServer, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = "another"
    assert "(401: " in sentence(server, spec)
    monkeypatch.setenv("KFP_TOKEN", TOKEN)
    # The stub's message quotes the token, as a server's may.
    assert "check the token in --token-file or KFP_TOKEN" in sentence(server, spec)
    monkeypatch.setenv("KFP_TOKEN", f"{TOKEN} {TOKEN}")
    assert "There is no token in the variable KFP_TOKEN" in sentence(server, spec)
    missing = Connection(server.url, token_file=str(tmp_path / "none"))
    assert "Cannot read the token file" in sentence(missing, spec)


NOT_THE_API = "is not the Kubeflow Pipelines v2 API"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"fault": Refusal(200, LOGIN)}, (NOT_THE_API, "it returned a web page")),
        ({"fault": Refusal(302, "", "https://dex/auth?state=hush")}, (NOT_THE_API, "(302)")),
        ({"failures": 1}, ("could not list experiments (500: ",)),
        ({"fault": gateway_error(403, 7, "Denied")}, ("its rights and --namespace",)),
        (
            {"refuse_spec": "InvalidInputError: unknown field 'rooot'"},
            ("could not upload the specification", "unknown field 'rooot'"),
        ),
    ],
    ids=["login page", "redirect", "trouble", "rights", "specification"],
)
def test_what_a_server_refuses(
    server: KfpServer, spec: Path, state: dict[str, Any], said: tuple[str, ...]
) -> None:
    vars(server).update(state)
    text = sentence(server, spec)
    assert all(words in text for words in said)
    assert "hush" not in text
    assert server.runs == []


def test_a_token_that_is_renewed(server: KfpServer, spec: Path, tmp_path: Path) -> None:
    """`kfp.Client` replaces the caller's token by its own, and ignores the namespace."""
    (tmp_path / "token").write_text(TOKEN)
    connection = Connection(server.url, "team", token_file=str(tmp_path / "token"), timeout=5.0)
    run = start(connection, spec)
    server.token = "renewed"
    with pytest.raises(UserError, match="401"):
        run.read()
    (tmp_path / "token").write_text("renewed")
    server.script.append(nodes("CANCELED", "ImageExampleGen CANCELED 1 2"))
    assert run.read().state == "CANCELED"
    own = [headers["authorization"] for headers in server.headers]
    assert own == [*[f"Bearer {TOKEN}"] * (len(own) - 1), "Bearer renewed"]
    assert {one["namespace"] for one in (*server.experiments, *server.pipelines)} == {"team"}


def test_an_address_that_does_not_answer(server: KfpServer, spec: Path) -> None:
    """The SDK's client has no time limits, and tries four times."""
    begin, server.hang = time.monotonic(), 4.0
    assert "(Read timed out" in sentence(Connection(server.url, timeout=0.2), spec)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "Connection refused" in sentence(Connection(f"http://127.0.0.1:{port}"), spec)
    assert "http://nowhere.invalid (" in sentence(Connection("http://nowhere.invalid"), spec)
    assert time.monotonic() - begin < 4


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("localhost:8080", "must be a URL"),
        (f"https://me:{TOKEN}@host", "must not contain a password"),
        (f"https://host/?token={TOKEN}", "must not contain a password or a query"),
    ],
)
def test_a_wrong_endpoint(endpoint: str, expected: str) -> None:
    with pytest.raises(UserError, match=re.escape(expected)) as caught:
        Connection(endpoint)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("path", ["/", "/_/pipeline/#/runs", "/pipeline/#/runs/details/1?tab=2"])
def test_an_endpoint_copied_from_the_browser(path: str) -> None:
    address = "https://host/pipeline" if "pipeline" in path else "https://host"
    assert Connection(f"https://host{path}").address() == address


def test_tls(tmp_path: Path, spec: Path, server: KfpServer) -> None:
    certificate, address = tmp_path / "cert.pem", server.url.replace("http:", "https:")
    server.use_tls(certificate)
    start(Connection(address, ca_cert=str(certificate), timeout=5.0), spec)
    text = sentence(Connection(address, timeout=5.0), spec)
    assert "self-signed certificate" in text
    assert "--ca-cert" in text
    with pytest.raises(UserError, match="there is no such file"):
        Connection(server.url, ca_cert="/none.pem")
