"""`kfp_runner.py check --preflight`: what a specification needs, against a stub of each service."""

from __future__ import annotations

import doctest
import json
import stat
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

import kfp_runner
from pipeline_def.kubeflow.check import image_registry
from tests.kubeflow.check.test_spec_check import SPEC
from tests.kubeflow.stub_server import StubServer

_KUBECTL = """#!/usr/bin/env python3
import json, sys
namespace, kind, name = sys.argv[2], sys.argv[5], sys.argv[6]
objects = json.load(open({objects!r}))
if namespace != "team-a":
    sys.exit('Error from server (Forbidden): secrets "x" is forbidden: User "me" cannot get it')
if name not in objects.get(kind, {{}}):
    sys.exit(f'Error from server (NotFound): {{kind}}s "{{name}}" not found')
print(json.dumps({{"data": objects[kind][name]}}))
"""


class Registry(StubServer):
    """A registry that wants a token, as public ones do, and has the image team/images:1."""

    def __init__(self) -> None:
        super().__init__(_Registry)
        self.private = False

    @property
    def host(self) -> str:
        return f"localhost:{self._http.server_port}"


class _Registry(BaseHTTPRequestHandler):
    stub: Registry

    def do_GET(self) -> None:
        assert self.path.startswith("/token?service=s&scope=repository%3Ateam")
        self._send(403 if self.stub.private else 200, b'{"token": "t"}')

    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") != "Bearer t":
            scope = f'service="s",scope="repository:{self.path.split("/manifests")[0][4:]}:pull"'
            challenge = f'Bearer realm="http://{self.stub.host}/token",{scope}'
            self._send(401, b"", **{"WWW-Authenticate": challenge})
        else:
            assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
            self._send(200 if self.path == "/v2/team/images/manifests/1" else 404, b"")

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the cluster has, as kubectl tells; a file to be changed."""
    objects, script = tmp_path / "objects.json", tmp_path / "bin" / "kubectl"
    script.parent.mkdir()
    script.write_text(_KUBECTL.format(objects=str(objects)))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    secret = {"accesskey": "", "secretkey": ""}
    objects.write_text(
        json.dumps({"secret": {"store": secret}, "persistentvolumeclaim": {"claim": {}}})
    )
    return objects


def write_spec(file: Path, image: str, data: str) -> str:
    spec = json.loads(json.dumps(SPEC))
    for executor in spec["deploymentSpec"]["executors"].values():
        executor["container"]["image"] = image
    spec["root"]["inputDefinitions"]["parameters"]["data"] = {
        "parameterType": "STRING",
        "defaultValue": data,
    }
    label = next(iter(spec["deploymentSpec"]["executors"]))
    keys = [{"secretKey": key, "envVar": key.upper()} for key in ("accesskey", "secretkey")]
    settings = {
        "secretAsEnv": [{"secretName": "store", "keyToEnv": keys}],
        "pvcMount": [{"constant": "claim", "mountPath": "/mnt"}],
    }
    executors = {"deploymentSpec": {"executors": {label: settings}}}
    file.write_text(yaml.safe_dump_all([spec, {"platforms": {"kubernetes": executors}}]))
    return str(file)


def look(
    capsys: pytest.CaptureFixture[str], spec: str, namespace: str = "team-a"
) -> tuple[int, list[str]]:
    capsys.readouterr()
    status = kfp_runner.main(["check", spec, "--preflight", "--namespace", namespace])
    return status, capsys.readouterr().out.splitlines()[1:]


def test_what_is_there_what_is_missing_and_what_is_not_seen(
    registry: Registry, cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "images" / "span-1" / label).mkdir(parents=True)
    file, right = tmp_path / "pipeline.yaml", f"{registry.host}/team/images:1"
    data = f"file://{tmp_path}/images/span-{{SPAN}}"
    status, lines = look(capsys, write_spec(file, right, data))
    assert [line.split()[:3] for line in lines] == [
        ["there", "image", right],
        ["there", "secret", "store"],
        ["there", "persistentvolumeclaim", "claim"],
        ["there", "data", f"{data}:"],
    ]
    assert status == 0

    cluster.write_text(json.dumps({"secret": {"store": {"accesskey": ""}}}))
    wrong = f"{registry.host}/team/image:1"
    status, lines = look(capsys, write_spec(file, wrong, f"file://{tmp_path}/none"))
    assert status == 1
    assert [line.split()[0] for line in lines] == ["MISSING"] * 4
    assert f"There is no image {wrong} in {registry.host}: push it or correct its name" in lines[0]
    assert "secret store in the namespace team-a has no secretkey" in lines[1]
    assert "There is no persistentvolumeclaim claim in the namespace team-a" in lines[2]
    assert f"there are no folders in file://{tmp_path}/none" in lines[3]

    registry.private = True
    status, lines = look(capsys, write_spec(file, right, "/mnt/images"), namespace="team-b")
    assert status == 0
    assert [line.split()[0] for line in lines] == ["unknown"] * 4
    assert "it asks for credentials" in lines[0]
    assert 'kubectl: Error from server (Forbidden): secrets "x" is forbidden' in lines[1]
    assert "a folder on a volume, which is not seen from here" in lines[3]


def test_without_kubectl_or_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = write_spec(tmp_path / "pipeline.yaml", "localhost:1/i:1", "/mnt/images")
    status, lines = look(capsys, spec)
    assert status == 0
    assert "no answer from localhost:1" in lines[0]
    assert "there is no kubectl on this machine" in lines[1]


def test_names_of_images() -> None:
    assert doctest.testmod(image_registry) == (0, 2)
    assert image_registry.split_name("gcr.io/p/i@sha256:ab") == ("gcr.io", "p/i", "sha256:ab")
    assert image_registry.split_name("docker.io/team/i:2")[:2] == ("registry-1.docker.io", "team/i")
