"""What a target would refuse is found in the specification, and the sentence says where."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import kube_config

import kfp_runner
from components.contract.errors import ConfigurationError, StorageError
from pipeline_def.kubeflow.specification import (
    Spec,
    Target,
    find_problems,
    find_target,
    read_documents,
)
from tests.kubeflow.conftest import container
from tests.kubeflow.workers.kubernetes_server import TOKEN, KubernetesServer

DEFAULTS = "spec: {templateDefaults: {retryStrategy: {limit: '2', retryPolicy: OnError}}}"
NESTED = f"workflowDefaults:\n  {DEFAULTS}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"workflowDefaults": DEFAULTS}, "retryPolicy: OnError: it starts lost pods again, but no"),
        ({"config": NESTED}, "retryPolicy: OnError: it starts lost pods again, but no"),
        ({"executor": "a: b"}, "Argo starts failing steps again"),
        (None, "is unknown: .* could not read the config map .*403"),
    ],
)
def test_preflight_tells_what_argo_makes_of_retries(
    tmp_path: Path,
    compiled_file: Path,
    data: dict[str, str] | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    with KubernetesServer() as server:
        if data is not None:
            server.config_maps["workflow-controller-configmap"] = data
            server.role = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
        entry = {"name": "a", "cluster": {"server": server.url}, "user": {"token": TOKEN}}
        context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
        lists = {"clusters": [entry], "users": [entry], "contexts": [context]}
        (tmp_path / "config").write_text(yaml.safe_dump({"current-context": "a", **lists}))
        assert kfp_runner.main(["check", str(compiled_file), "--preflight"]) == 0
    assert re.search(said, capsys.readouterr().out)


Edit = Callable[[Spec], Any]


def with_accelerator(kind: str) -> Edit:
    resources = {"accelerator": {"type": kind, "count": "1"}}
    return lambda spec: container(spec, "Trainer").update(resources=resources)


def without_image(spec: Spec) -> None:
    container(spec, "Trainer").pop("image")


def misnamed(spec: Spec) -> None:
    spec["pipelineInfo"]["name"] = "My Images"


MISTAKES: list[tuple[Target, str, Edit]] = [
    ("oss", "Invalid pipeline name 'My Images'", misnamed),
    ("oss", "must start with gs:// or s3://", lambda s: s.update(defaultPipelineRoot="/data")),
    ("oss", "Trainer has no container image", without_image),
    (
        "oss",
        "Trainer requests the accelerator 'NVIDIA_TESLA_T4'",
        with_accelerator("NVIDIA_TESLA_T4"),
    ),
    ("vertex", "gpu_type to a name like NVIDIA_TESLA_T4", with_accelerator("nvidia.com/gpu")),
    ("oss", 'specification is invalid: .*"rooot"', lambda s: s.update(rooot={})),
    # KFP's backend discards unknown fields there silently.
    (
        "oss",
        'deploymentSpec is invalid: .*"imagee"',
        lambda s: container(s, "Trainer").update(imagee="x"),
    ),
]


@pytest.mark.parametrize(("target", "sentence", "edit"), MISTAKES)
def test_a_mistake_is_found(
    compiled: list[Spec], target: Target, sentence: str, edit: Edit
) -> None:
    spec = copy.deepcopy(compiled[0])
    edit(spec)
    [problem] = find_problems([spec], target)
    assert re.search(sentence, problem)


def test_a_correct_specification_is_accepted(compiled: list[Spec]) -> None:
    targets: tuple[tuple[Target, str], ...] = (("oss", "nvidia.com/gpu"), ("vertex", "TPU_V3"))
    for target, kind in targets:
        spec = copy.deepcopy(compiled[0])
        with_accelerator(kind)(spec)
        assert find_problems([spec], target) == []
    assert find_problems(compiled, "oss") == []


@pytest.mark.parametrize(
    ("documents", "target", "sentence"),
    [
        (lambda found: [], "oss", "must contain a specification"),
        (lambda found: [found[0], 5], "oss", "may have a document `platforms`"),
        (lambda found: [found[0], {"platform": {}}], "oss", "platform document is invalid"),
        (lambda found: found, "vertex", "Vertex AI reads no platform document"),
    ],
)
def test_documents_that_would_be_refused_or_ignored(
    compiled: list[Spec],
    documents: Callable[[list[Spec]], list[Any]],
    target: Target,
    sentence: str,
) -> None:
    [problem] = find_problems(documents(compiled), target)
    assert sentence in problem


def test_check_lists_all_problems(
    tmp_path: Path, compiled: list[Spec], capsys: pytest.CaptureFixture[str]
) -> None:
    spec, file = copy.deepcopy(compiled[0]), tmp_path / "spec.json"
    without_image(spec)
    misnamed(spec)
    for content, status in ((spec, 2), (compiled[0], 0)):
        file.write_text(json.dumps(content))
        assert kfp_runner.main(["check", str(file)]) == status
    [line] = capsys.readouterr().err.splitlines()
    said = ("Kubeflow Pipelines would not run this", "Trainer has no container", "name 'My Images'")
    assert all(words in line for words in said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["check"], "Valid for oss: "),
        (["check", "--target", "vertex"], "is for oss, not for vertex: compile it again"),
        (["run", "--target", "vertex", "--project", "p", "--region", "r"], "is for oss, not for v"),
    ],
)
def test_check_and_run_take_a_file_alike_and_say_what_it_is_for(
    compiled_file: Path, capsys: pytest.CaptureFixture[str], command: list[str], said: str
) -> None:
    kfp_runner.main([command[0], str(compiled_file), *command[1:]])
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
    assert "remove node_selector" not in shown.err


def test_the_target_of_a_file(compiled: list[Spec]) -> None:
    [spec, platform], vertex = compiled, copy.deepcopy(compiled[0])
    for executor in vertex["deploymentSpec"]["executors"].values():
        executor["container"]["args"].append('{"direct": true}')
    found = [find_target(one) for one in ([spec, platform], [vertex], [spec], [], ["a"])]
    assert found == ["oss", "vertex", "oss", "oss", "oss"]


@pytest.mark.parametrize(
    ("content", "message"), [(b"a: [", "neither YAML nor JSON"), (b"\xff\xfe\x00", "not text")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read_documents(str(file))
    with pytest.raises(StorageError, match="No such file"):
        read_documents(str(tmp_path / "none.yaml"))
