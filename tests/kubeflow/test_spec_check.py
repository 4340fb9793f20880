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
from tests.kubeflow.small_spec import SPEC, platform, write_spec
from tests.kubeflow.workers.kubernetes_server import TOKEN, KubernetesServer

PLATFORM = platform({"nodeSelector": {"labels": {"gpu": "a100"}}})


def container(spec: Spec, task: str = "Train") -> Spec:
    found: Spec = spec["deploymentSpec"]["executors"][f"{task}_executor"]["container"]
    return found


def accelerator(kind: str) -> Spec:
    return {"resources": {"accelerator": {"type": kind, "count": "1"}}}


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
        assert kfp_runner.main(["check", str(write_spec(tmp_path / "a.yaml")), "--preflight"]) == 0
    assert re.search(said, capsys.readouterr().out)


Edit = Callable[[Spec], Any]
MISTAKES: list[tuple[Target, str, Edit]] = [
    (
        "oss",
        "Invalid pipeline name 'My Images'",
        lambda s: s["pipelineInfo"].update(name="My Images"),
    ),
    ("oss", "must start with gs:// or s3://", lambda s: s.update(defaultPipelineRoot="/data")),
    ("oss", "Train has no container image", lambda s: container(s).pop("image")),
    (
        "oss",
        "Train requests the accelerator 'NVIDIA_TESLA_T4'",
        lambda s: container(s).update(accelerator("NVIDIA_TESLA_T4")),
    ),
    (
        "vertex",
        "gpu_type to a name like NVIDIA_TESLA_T4",
        lambda s: container(s).update(accelerator("nvidia.com/gpu")),
    ),
    ("oss", 'specification is invalid: .*"rooot"', lambda s: s.update(rooot={})),
    # KFP's backend discards unknown fields there silently.
    ("oss", 'deploymentSpec is invalid: .*"imagee"', lambda s: container(s).update(imagee="x")),
]


def test_a_correct_specification_is_accepted() -> None:
    targets: tuple[tuple[Target, str], ...] = (("oss", "nvidia.com/gpu"), ("vertex", "TPU_V3"))
    for target, kind in targets:
        spec = copy.deepcopy(SPEC)
        container(spec).update(accelerator(kind))
        assert find_problems([spec], target) == []
    assert find_problems([SPEC, PLATFORM], "oss") == []


def edited(*edits: Edit) -> Spec:
    spec = copy.deepcopy(SPEC)
    for edit in edits:
        edit(spec)
    return spec


DOCUMENTS: list[tuple[Target, str, list[Any]]] = [
    ("oss", "must contain a specification", []),
    ("oss", "may have a document `platforms`", [SPEC, 5]),
    ("oss", "platform document is invalid", [SPEC, {"platform": {}}]),
    ("vertex", "Vertex AI reads no platform document", [SPEC, PLATFORM]),
    *((target, sentence, [edited(edit)]) for target, sentence, edit in MISTAKES),
]


@pytest.mark.parametrize(("target", "sentence", "documents"), DOCUMENTS)
def test_what_would_be_refused_is_found(
    target: Target, sentence: str, documents: list[Any]
) -> None:
    [problem] = find_problems(documents, target)
    assert re.search(sentence, problem)


def test_check_lists_all_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "spec.json"
    nameless = edited(MISTAKES[0][2], MISTAKES[2][2])
    for spec, status in ((nameless, 2), (SPEC, 0)):
        file.write_text(json.dumps(spec))
        assert kfp_runner.main(["check", str(file)]) == status
    [line] = capsys.readouterr().err.splitlines()
    said = ("Kubeflow Pipelines would not run this", "Train has no container", "name 'My Images'")
    assert all(words in line for words in said)


OSS = [SPEC, PLATFORM]


@pytest.mark.parametrize(
    ("command", "target", "said"),
    [
        (["check", "{}"], OSS, "Valid for oss: "),
        (
            ["check", "{}", "--target", "vertex"],
            OSS,
            "is for oss, not for vertex: compile it again",
        ),
        (["run", "{}", "--endpoint", "http://127.0.0.1:1"], [SPEC, {"x": 1}], "would not run this"),
    ],
)
def test_check_and_run_take_a_file_alike_and_say_what_it_is_for(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    target: list[Any],
    said: str,
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump_all(target))
    kfp_runner.main([word.format(file) for word in command])
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
    assert "remove node_selector" not in shown.err


def test_the_target_of_a_file() -> None:
    vertex = copy.deepcopy(SPEC)
    for step in ("Gen", "Train"):
        container(vertex, step)["args"].append('{"direct": true}')
    found = [find_target(documents) for documents in (OSS, [vertex], [SPEC], [], ["a"])]
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
