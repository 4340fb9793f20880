"""Mistakes that a target would refuse, each found when the pipeline is compiled, by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kfp_runner
from components.contract.errors import ConfigurationError, StorageError
from pipeline_def.kubeflow.check.constructs import SENTENCES
from pipeline_def.kubeflow.check.spec_check import find_problems, read_documents
from pipeline_def.kubeflow.specification import Spec, Target


def artifact(title: str = "tfx.Examples") -> Spec:
    return {"artifactType": {"instanceSchema": f"title: {title}\ntype: object\n"}}


def container(step: str) -> Spec:
    arguments = ["--step", step, "--input", "{{$}}"]
    return {"container": {"image": "r/i:1", "command": ["python"], "args": arguments}}


STRING = {"parameterType": "STRING"}
SPEC: Spec = {
    "pipelineInfo": {"name": "images"},
    "schemaVersion": "2.1.0",
    "sdkVersion": "tfx-1.16.0",
    "deploymentSpec": {
        "executors": {"Gen_executor": container("Gen"), "Train_executor": container("Train")}
    },
    "components": {
        "Gen": {
            "executorLabel": "Gen_executor",
            "inputDefinitions": {"parameters": {"data": {"parameterType": "STRING"}}},
            "outputDefinitions": {
                "artifacts": {"examples": artifact()},
                "parameters": {"found": {"parameterType": "STRING"}},
            },
        },
        "Train": {
            "executorLabel": "Train_executor",
            "inputDefinitions": {
                "artifacts": {"examples": artifact()},
                "parameters": {
                    "steps": {"parameterType": "NUMBER_INTEGER"},
                    "found": {"parameterType": "STRING"},
                },
            },
        },
    },
    "root": {
        "inputDefinitions": {
            "parameters": {"data": {"parameterType": "STRING", "defaultValue": "gs://b"}}
        },
        "dag": {
            "tasks": {
                "Gen": {
                    "componentRef": {"name": "Gen"},
                    "taskInfo": {"name": "Gen"},
                    "inputs": {"parameters": {"data": {"componentInputParameter": "data"}}},
                },
                "Train": {
                    "componentRef": {"name": "Train"},
                    "taskInfo": {"name": "Train"},
                    "dependentTasks": ["Gen"],
                    "inputs": {
                        "artifacts": {
                            "examples": {
                                "taskOutputArtifact": {
                                    "producerTask": "Gen",
                                    "outputArtifactKey": "examples",
                                }
                            }
                        },
                        "parameters": {
                            "steps": {"runtimeValue": {"constant": 5.0}},
                            "found": {
                                "taskOutputParameter": {
                                    "producerTask": "Gen",
                                    "outputParameterKey": "found",
                                }
                            },
                        },
                    },
                },
            }
        },
    },
}
PLATFORM: Spec = {
    "platforms": {
        "kubernetes": {
            "deploymentSpec": {
                "executors": {"Train_executor": {"nodeSelector": {"labels": {"gpu": "a100"}}}}
            }
        }
    }
}


def tasks(spec: Spec) -> Spec:
    found: Spec = spec["root"]["dag"]["tasks"]
    return found


def nest(spec: Spec) -> Spec:
    """Put Train into a sub-DAG, and return its component."""
    inputs = {"artifacts": {"examples": artifact()}, "parameters": {}}
    train = tasks(spec)["Train"]
    tasks(spec)["train"] = {
        "componentRef": {"name": "stage"},
        "taskInfo": {"name": "train"},
        "inputs": {"artifacts": copy.deepcopy(train["inputs"]["artifacts"])},
    }
    train["inputs"]["artifacts"]["examples"] = {"componentInputArtifact": "examples"}
    train["inputs"]["parameters"]["found"] = {"runtimeValue": {"constant": "x"}}
    train["dependentTasks"] = []
    stage = {"inputDefinitions": inputs, "dag": {"tasks": {"Train": tasks(spec).pop("Train")}}}
    spec["components"]["stage"] = stage
    return stage


def executors(spec: Spec) -> Spec:
    found: Spec = spec["deploymentSpec"]["executors"]
    return found


def rename(spec: Spec) -> None:
    tasks(spec)["Train.model"] = tasks(spec).pop("Train")


def circle(spec: Spec) -> None:
    tasks(spec)["Gen"]["dependentTasks"] = ["Train"]


def parameter(spec: Spec, name: str, source: Spec) -> None:
    tasks(spec)["Train"]["inputs"]["parameters"][name] = source


def resources(kind: str) -> Spec:
    return {"accelerator": {"type": kind, "count": "1"}}


OSS_MISTAKES: dict[str, Callable[[Spec], Any]] = {
    "schema-version": lambda s: s.update(schemaVersion="2.0.0"),
    "pipeline-name": lambda s: s["pipelineInfo"].update(name="My Images"),
    "task-name": rename,
    "no-tasks": lambda s: tasks(s).clear(),
    "component": lambda s: tasks(s)["Train"]["componentRef"].update(name="Trian"),
    "executor": lambda s: s["components"]["Train"].update(executorLabel="none"),
    "task-info": lambda s: tasks(s)["Train"].pop("taskInfo"),
    "dependency": lambda s: tasks(s)["Train"]["dependentTasks"].append("Gone"),
    "cycle": circle,
    "resolver": lambda s: executors(s).update(Gen_executor={"resolver": {}}),
    "custom-job": lambda s: executors(s).update(Gen_executor={"customJob": {"customJob": {}}}),
    "importer-condition": lambda s: (
        executors(s).update(Gen_executor={"importer": {"artifactUri": {"constant": "gs://b"}}}),
        tasks(s)["Gen"].update(triggerPolicy={"condition": "true"}),
    ),
    "importer-parameter": lambda s: executors(s).update(
        Gen_executor={"importer": {"artifactUri": {"runtimeParameter": "artifact_uri"}}}
    ),
    "importer-uri": lambda s: executors(s).update(
        Gen_executor={"importer": {"artifactUri": {"constant": "/data/model"}}}
    ),
    "exit-handler": lambda s: tasks(s).update({"tfx-dag": tasks(s)["Gen"]}),
    "default": lambda s: s["root"]["inputDefinitions"]["parameters"]["data"].pop("defaultValue"),
    "default-type": lambda s: s["root"]["inputDefinitions"]["parameters"].update(
        rate={"parameterType": "NUMBER_DOUBLE", "defaultValue": "fast"}
    ),
    "parameter-type": lambda s: s["components"]["Train"]["inputDefinitions"]["parameters"].update(
        steps={"type": "INT"}
    ),
    "layer-input": lambda s: parameter(s, "found", {"componentInputParameter": "fuond"}),
    "runtime-value": lambda s: parameter(
        s, "steps", {"runtimeValue": {"constantValue": {"intValue": "5"}}}
    ),
    "null-constant": lambda s: parameter(s, "steps", {"runtimeValue": {"constant": None}}),
    "constant-type": lambda s: parameter(s, "steps", {"runtimeValue": {"constant": "5"}}),
    "producer": lambda s: parameter(
        s,
        "found",
        {"taskOutputParameter": {"producerTask": "Gen_task", "outputParameterKey": "found"}},
    ),
    "output": lambda s: parameter(
        s, "found", {"taskOutputParameter": {"producerTask": "Gen", "outputParameterKey": "fuond"}}
    ),
    "missing-input": lambda s: tasks(s)["Train"]["inputs"]["parameters"].pop("steps"),
    "lost-default": lambda s: s["components"]["Train"]["inputDefinitions"]["parameters"].update(
        rate={"parameterType": "NUMBER_DOUBLE", "defaultValue": 0.1}
    ),
    "artifact-type": lambda s: s["components"]["Gen"]["outputDefinitions"]["artifacts"].update(
        examples={"artifactType": {"instanceSchema": "type: object\n"}}
    ),
    "null-metadata": lambda s: s["components"]["Gen"]["outputDefinitions"]["artifacts"][
        "examples"
    ].update(metadata={"span": None}),
    "artifact-iterator": lambda s: tasks(s)["Train"].update(
        artifactIterator={"itemInput": "x", "items": {"inputArtifact": "y"}}
    ),
    "image": lambda s: executors(s)["Gen_executor"]["container"].pop("image"),
    "command": lambda s: executors(s)["Gen_executor"]["container"].update(command=[], args=[]),
    "argument-length": lambda s: executors(s)["Gen_executor"]["container"]["args"].append(
        "x" * 131_073
    ),
    "placeholder": lambda s: executors(s)["Gen_executor"]["container"]["args"].append(
        "{{$.inputs.parameters['dta']}}"
    ),
    "pre-cache-check": lambda s: executors(s)["Gen_executor"]["container"].update(
        lifecycle={"preCacheCheck": {"command": ["python"]}}
    ),
    "accelerator": lambda s: executors(s)["Train_executor"]["container"].update(
        resources=resources("NVIDIA_TESLA_T4")
    ),
    "pipeline-root": lambda s: s.update(defaultPipelineRoot="/data/run"),
    "fields": lambda s: s["root"].update(tasks={}),
    "argo-tag": lambda s: executors(s)["Gen_executor"]["container"]["args"].append(
        "{{inputs.parameters.x}}"
    ),
    "same-container": lambda s: executors(s).update(Gen_executor=container("Train")),
}
VERTEX_MISTAKES: dict[str, Callable[[Spec], Any]] = {
    "accelerator": lambda s: executors(s)["Train_executor"]["container"].update(
        resources=resources("nvidia.com/gpu")
    ),
    "pipeline-root": lambda s: s.update(defaultPipelineRoot="minio://bucket/run"),
}


def codes(documents: list[Any], target: Target) -> set[str]:
    return {problem.code for problem in find_problems(documents, target)}


@pytest.mark.parametrize("target", ["oss", "vertex"])
def test_a_good_specification_is_not_refused(target: Target) -> None:
    assert find_problems([SPEC], target) == []
    assert find_problems([SPEC, PLATFORM], "oss") == []


@pytest.mark.parametrize(
    ("target", "code", "mistake"),
    [
        *(("oss", code, mistake) for code, mistake in OSS_MISTAKES.items()),
        *(("vertex", code, mistake) for code, mistake in VERTEX_MISTAKES.items()),
    ],
)
def test_a_mistake_is_named(target: Target, code: str, mistake: Callable[[Spec], Any]) -> None:
    spec = copy.deepcopy(SPEC)
    mistake(spec)
    assert code in codes([spec], target)


CORRECT: dict[str, Callable[[Spec], Any]] = {
    "a condition on an artifact": lambda s: tasks(s)["Train"].update(
        triggerPolicy={"condition": "inputs.artifacts['examples'].artifacts[0].uri == 'gs://b'"}
    ),
    "an exit handler of KFP's": lambda s: tasks(s)["Train"].update(
        triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    ),
    "an importer whose URI the run gives": lambda s: executors(s).update(
        Gen_executor={"importer": {"artifactUri": {"runtimeParameter": "data"}}}
    ),
    "a number for a text": lambda s: parameter(s, "found", {"runtimeValue": {"constant": 5.0}}),
    "tasks in the order of their data": lambda s: tasks(s)["Train"].pop("dependentTasks"),
    "arguments only": lambda s: executors(s)["Gen_executor"]["container"].pop("command"),
    "braces": lambda s: executors(s)["Gen_executor"]["container"]["args"].append("{{ x }}"),
}


@pytest.mark.parametrize("correct", CORRECT.values(), ids=CORRECT.keys())
def test_what_kubeflow_takes_is_not_refused(correct: Callable[[Spec], Any]) -> None:
    spec = copy.deepcopy(SPEC)
    correct(spec)
    assert codes([spec], "oss") == set()


def give_gone(stage: Spec) -> None:
    selector = {"producerSubtask": "Train", "outputArtifactKey": "model"}
    stage["dag"]["outputs"] = {"artifacts": {"model": {"artifactSelectors": [selector]}}}


def read_other(stage: Spec) -> None:
    sources = stage["dag"]["tasks"]["Train"]["inputs"]["artifacts"]
    sources["examples"] = {"componentInputArtifact": "exmaples"}


NESTED_MISTAKES: list[tuple[str, Callable[[Spec], Any]]] = [
    ("output", give_gone),
    ("layer-input", read_other),
    ("dependency", lambda stage: stage["dag"]["tasks"]["Train"].update(dependentTasks=["Gen"])),
    ("no-tasks", lambda stage: stage["dag"]["tasks"].clear()),
    ("missing-input", lambda s: s["inputDefinitions"]["parameters"].update(a=STRING)),
]


@pytest.mark.parametrize(("code", "mistake"), NESTED_MISTAKES)
def test_mistakes_are_found_in_sub_dags(code: str, mistake: Callable[[Spec], Any]) -> None:
    spec = copy.deepcopy(SPEC)
    stage = nest(spec)
    assert codes([spec], "oss") == set()
    mistake(stage)
    assert codes([spec], "oss") == {code}


def test_what_only_vertex_runs_is_no_mistake_there() -> None:
    spec = copy.deepcopy(SPEC)
    for code in ("schema-version", "exit-handler", "pre-cache-check", "resolver"):
        OSS_MISTAKES[code](spec)
    assert codes([spec], "vertex") == set()


def test_files_that_are_no_specification() -> None:
    assert codes([], "oss") == {"empty"}
    assert codes([{"pipelineSpec": SPEC}], "vertex") == {"json-wrapper"}
    assert codes([SPEC, {"platform": {}}], "oss") == {"documents"}
    assert codes([SPEC, PLATFORM], "vertex") == {"platform"}


def of_train(settings: Spec, label: str = "Train_executor") -> Spec:
    return {"kubernetes": {"deploymentSpec": {"executors": {label: settings}}}}


PLATFORM_MISTAKES = [
    ("platform-executor", of_train({}, "Other")),
    ("platform-fields", {"kubernete": {}}),
    ("platform-fields", {"kubernetes": {"deploymentSpecs": {}}}),
    ("platform-settings", of_train({"nodeSelectors": {}})),
    ("platform-unread", of_train({"enabledSharedMemory": {"size": "1Gi"}})),
]


@pytest.mark.parametrize(("code", "platform"), PLATFORM_MISTAKES)
def test_a_platform_document_that_would_be_ignored(code: str, platform: Spec) -> None:
    assert codes([SPEC, {"platforms": platform}], "oss") == {code}


def test_every_construct_that_has_a_sentence_has_a_case() -> None:
    documents = {"empty", "json-wrapper", "documents", "platform"}
    platforms = {code for code, _ in PLATFORM_MISTAKES}
    assert documents | platforms | OSS_MISTAKES.keys() == SENTENCES.keys()


def test_a_platform_document_may_hold_more_than_executors() -> None:
    platform = copy.deepcopy(PLATFORM)
    platform["platforms"]["kubernetes"]["pipelineConfig"] = {}
    assert codes([SPEC, platform], "oss") == set()


def test_unknown_fields_of_executors_are_not_discarded_without_a_word() -> None:
    spec = copy.deepcopy(SPEC)
    executors(spec)["Gen_executor"]["container"]["imagee"] = "r/i:2"
    assert codes([spec], "oss") == {"fields"}


def test_check_names_all_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = copy.deepcopy(SPEC)
    OSS_MISTAKES["resolver"](spec)
    OSS_MISTAKES["default"](spec)
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    assert kfp_runner.main(["check", str(file)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "[resolver] Gen is a Resolver" in line
    assert "[default] The parameter data of the run has no default" in line
    file.write_text(json.dumps(SPEC))
    assert kfp_runner.main(["check", str(file)]) == 0


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
