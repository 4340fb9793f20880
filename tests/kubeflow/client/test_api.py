"""Requests to open-source Kubeflow Pipelines, and one sentence for each way they fail."""

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import UserError
from pipeline_def.kubeflow.client import api
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.runs import RunRequest, read_run, start_run
from pipeline_def.kubeflow.specification import Spec
from tests.kubeflow.client.conftest import Say
from tests.kubeflow.client.kfp_server import LOGIN, KfpServer, Refusal, gateway_error, nodes

TOKEN = "eyJ-very-secret"


def refused(say: Say, *options: str) -> str:
    """Return the error message: one sentence on one line, without the token."""
    status, text = say("run", *options)
    assert (status, text.count("\n")) == (2, 1), text
    assert text.rstrip()[-1] in ".?"
    assert TOKEN not in text
    assert len(text) < 700
    return text


def test_an_experiment_is_found_again_whatever_is_in_its_name(server: KfpServer, say: Say) -> None:
    for _ in range(2):
        assert say("run", "--experiment", '1+1=2&more 50% "c"')[0] == 0
    assert len(server.pipelines) == len(server.experiments) == 1
    assert len(server.runs) == 2


def test_the_token_is_sent(
    server: KfpServer, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token, file = TOKEN, tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert say("run", "--token-file", str(file))[0] == 0
    monkeypatch.setenv("KFP_TOKEN", TOKEN)
    assert say("run")[0] == 0
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {TOKEN}"}


def test_a_token_that_is_missing_or_wrong(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.token, empty = "another", tmp_path / "empty"
    empty.touch()
    assert "(401: " in refused(say)
    monkeypatch.setenv("KFP_TOKEN", TOKEN)
    # The stub's message quotes the token, as a server's may.
    assert "check the token in --token-file or KFP_TOKEN" in refused(say)
    monkeypatch.setenv("KFP_TOKEN", f"{TOKEN} {TOKEN}")
    assert "There is no token in the variable KFP_TOKEN" in refused(say)
    assert "Cannot read /nowhere/token" in refused(say, "--token-file", "/nowhere/token")
    assert f"There is no token in {empty}" in refused(say, "--token-file", str(empty))


NOT_THE_API = "is not the Kubeflow Pipelines v2 API"
INVALID = "InvalidInputError: unknown field 'rooot'"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"fault": Refusal(200, LOGIN)}, (NOT_THE_API, "it returned a web page")),
        ({"fault": Refusal(302, "", "https://dex/auth?state=hush")}, (NOT_THE_API, "(302)")),
        ({"failures": 1}, ("could not list experiments (500: ",)),
        ({"fault": gateway_error(403, 7, "Denied")}, ("its rights and --namespace",)),
        ({"refuse_spec": INVALID}, ("could not upload the specification", "unknown field 'rooot'")),
    ],
    ids=["login page", "redirect", "trouble", "rights", "specification"],
)
def test_what_a_server_refuses(
    server: KfpServer, say: Say, state: dict[str, Any], said: tuple[str, ...]
) -> None:
    vars(server).update(state)
    text = refused(say)
    assert all(words in text for words in said)
    assert "hush" not in text
    assert server.runs == []


def test_a_token_that_is_renewed(server: KfpServer, compiled: list[Spec], tmp_path: Path) -> None:
    """`kfp.Client` replaces the caller's token by its own, and ignores the namespace."""
    (tmp_path / "token").write_text(TOKEN)
    api = Api(server.url, namespace="team", token_file=str(tmp_path / "token"))
    run = start_run(api, RunRequest(compiled, "first", {}, experiment="flowers"))
    server.token = "renewed"
    with pytest.raises(UserError, match="401"):
        read_run(api, run, ())
    (tmp_path / "token").write_text("renewed")
    server.script.append(nodes("CANCELED", "ImageExampleGen CANCELED 1 2"))
    assert read_run(api, run, ()).state == "CANCELED"
    sent = [headers["authorization"] for headers in server.headers]
    assert sent == [*[f"Bearer {TOKEN}"] * (len(sent) - 1), "Bearer renewed"]
    assert {row["namespace"] for row in (*server.experiments, *server.pipelines)} == {"team"}


def test_an_address_that_does_not_answer(
    server: KfpServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's client has no time limits, and tries four times."""
    monkeypatch.setattr(api, "_TIMEOUT_SECONDS", (0.2, 0.2))
    begin, server.hang = time.monotonic(), 4.0
    assert "(Read timed out" in refused(say)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert "Connection refused" in refused(say, "--endpoint", address)
    assert "http://nowhere.invalid (" in refused(say, "--endpoint", "http://nowhere.invalid")
    assert time.monotonic() - begin < 4


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("localhost:8080", "must be a URL"),
        (f"https://me:{TOKEN}@host", "must not contain a password"),
        (f"https://host/?token={TOKEN}", "must not contain a password or a query"),
    ],
)
def test_a_wrong_endpoint(say: Say, endpoint: str, expected: str) -> None:
    assert expected in refused(say, "--endpoint", endpoint)


@pytest.mark.parametrize("path", ["/", "/_/pipeline/#/runs", "/pipeline/#/runs/details/1?tab=2"])
def test_an_endpoint_copied_from_the_browser(path: str) -> None:
    address = "https://host/pipeline" if "pipeline" in path else "https://host"
    assert Api(f"https://host{path}").address == address


def test_tls(tmp_path: Path, say: Say, server: KfpServer) -> None:
    certificate, address = tmp_path / "cert.pem", server.url.replace("http:", "https:")
    server.use_tls(certificate)
    assert say("run", "--endpoint", address, "--ca-cert", str(certificate))[0] == 0
    text = refused(say, "--endpoint", address)
    assert "self-signed certificate" in text
    assert "--ca-cert" in text
    assert "there is no such file" in refused(say, "--ca-cert", "/none.pem")
