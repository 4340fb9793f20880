"""`kfp_runner.py check --preflight`: what a specification needs, against a stub of kubectl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import kfp_runner
from tests.kubeflow.small_spec import SPEC, platform, write_spec

_KUBECTL = """#!/usr/bin/env python3
import json, sys
namespace, kind, name = sys.argv[2], sys.argv[5], sys.argv[6]
objects = json.load(open({objects!r}))
if namespace != "team-a":
    print("E1123 memcache.go:265] retry", file=sys.stderr)
    sys.exit('Error from server (Forbidden): secrets "x" is forbidden: User "me" cannot get it')
if name not in objects.get(kind, {{}}):
    sys.exit(f'Error from server (NotFound): {{kind}}s "{{name}}" not found')
print(json.dumps({{"data": objects[kind][name]}}))
"""
_KEYS = [{"secretKey": key, "envVar": key.upper()} for key in ("accesskey", "secretkey")]
_PLATFORM = platform(
    {
        "secretAsEnv": [{"secretName": "store", "keyToEnv": _KEYS}],
        "imagePullSecret": [{"secretName": "pull"}],
        "pvcMount": [{"constant": "claim", "mountPath": "/mnt"}],
    }
)

Check = Callable[..., tuple[int, list[list[str]]]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the objects that kubectl finds."""
    objects, script = tmp_path / "objects.json", tmp_path / "bin" / "kubectl"
    script.parent.mkdir()
    script.write_text(_KUBECTL.format(objects=str(objects)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    secrets = {"store": {"accesskey": "", "secretkey": ""}, "pull": {}}
    objects.write_text(json.dumps({"secret": secrets, "persistentvolumeclaim": {"claim": {}}}))
    return objects


@pytest.fixture
def check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Check:
    """Run the command on a specification with this data; return its status and findings."""

    def run(data: str, namespace: str = "team-a") -> tuple[int, list[list[str]]]:
        defined = SPEC["root"]["inputDefinitions"]["parameters"]["data"]
        monkeypatch.setitem(defined, "defaultValue", data)
        file = str(write_spec(tmp_path / "pipeline.yaml", _PLATFORM))
        capsys.readouterr()
        status = kfp_runner.main(["check", file, "--preflight", "--namespace", namespace])
        return status, [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()[1:]]

    return run


def test_everything_is_found(cluster: Path, check: Check, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "images" / "span-1" / label).mkdir(parents=True)
    data = f"file://{tmp_path}/images/span-{{SPAN}}"
    status, findings = check(data)
    assert status == 0
    assert [finding[:3] for finding in findings] == [
        ["unknown", "image", "r/i:1:"],
        ["found", "secret", "pull"],
        ["found", "secret", "store"],
        ["found", "persistentvolumeclaim", "claim"],
        ["found", "data", f"{data}:"],
    ]


def test_missing_objects_and_folders(cluster: Path, check: Check, tmp_path: Path) -> None:
    cluster.write_text(json.dumps({"secret": {"store": {"accesskey": ""}, "pull": {}}}))
    status, findings = check(f"file://{tmp_path}/none")
    assert status == 1
    assert [finding[0] for finding in findings] == ["unknown", "found", *["MISSING"] * 3]
    assert findings[2][3] == "in the namespace team-a: it has no secretkey"
    assert findings[3][3] == "in the namespace team-a: create it or correct its name"
    assert findings[4][3] == f"there are no folders in file://{tmp_path}/none"


@pytest.mark.parametrize(
    ("path", "namespace", "reason"),
    [
        (None, "team-b", 'kubectl: Error from server (Forbidden): secrets "x" is forbidden'),
        ("/nowhere", "team-a", "kubectl is not installed"),
    ],
    ids=["no rights", "no kubectl"],
)
def test_what_cannot_be_seen_is_unknown(
    cluster: Path,
    check: Check,
    monkeypatch: pytest.MonkeyPatch,
    path: str | None,
    namespace: str,
    reason: str,
) -> None:
    if path:
        monkeypatch.setenv("PATH", path)
    status, findings = check("/mnt/images", namespace)
    assert status == 0
    assert [finding[0] for finding in findings] == ["unknown"] * 5
    assert findings[1][3].startswith(f"in the namespace {namespace}: {reason}")
    assert findings[4][3] == "a folder on a volume of the cluster"
