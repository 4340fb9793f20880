"""Whether Kubeflow Pipelines' own API server takes a pipeline file, release by release."""

from __future__ import annotations

import copy
import functools
import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import kfp_runner
from tests.kubeflow import kfp_backend
from tests.kubeflow.kfp_backend import Refused, Release, argo_workflow

# One process, which builds KFP's packages once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kfp")]

Spec = dict[str, Any]
Write = Callable[..., Path]


@pytest.fixture(scope="session", params=kfp_backend.releases(), ids=operator.attrgetter("name"))
def release(request: pytest.FixtureRequest) -> Release:
    """Each release in turn, built. Where it cannot be had, its tests are skipped."""
    found: Release = request.param
    try:
        kfp_backend.program(found)
    except kfp_backend.Unavailable as reason:
        pytest.skip(f"Kubeflow Pipelines {found.name}: {reason}")
    return found


SPEC: Spec = {
    "schemaVersion": "2.1.0",
    "sdkVersion": "kfp-2.14.3",
    "pipelineInfo": {"name": "images"},
    "root": {
        "inputDefinitions": {
            "parameters": {
                "steps": {"parameterType": "NUMBER_INTEGER", "defaultValue": 100},
                "data": {"parameterType": "STRING"},
            }
        },
        "dag": {
            "tasks": {
                "ingest": {
                    "taskInfo": {"name": "ingest"},
                    "componentRef": {"name": "comp-ingest"},
                    "inputs": {"parameters": {"data": {"componentInputParameter": "data"}}},
                    "cachingOptions": {"enableCache": True},
                },
                "train": {
                    "taskInfo": {"name": "train"},
                    "componentRef": {"name": "comp-train"},
                    "dependentTasks": ["ingest"],
                    "inputs": {
                        "parameters": {"steps": {"componentInputParameter": "steps"}},
                        "artifacts": {
                            "examples": {
                                "taskOutputArtifact": {
                                    "producerTask": "ingest",
                                    "outputArtifactKey": "examples",
                                }
                            }
                        },
                    },
                },
            }
        },
    },
    "components": {
        "comp-ingest": {
            "executorLabel": "exec-ingest",
            "inputDefinitions": {"parameters": {"data": {"parameterType": "STRING"}}},
            "outputDefinitions": {
                "artifacts": {"examples": {"artifactType": {"schemaTitle": "system.Dataset"}}}
            },
        },
        "comp-train": {
            "executorLabel": "exec-train",
            "inputDefinitions": {
                "parameters": {"steps": {"parameterType": "NUMBER_INTEGER"}},
                "artifacts": {"examples": {"artifactType": {"schemaTitle": "system.Dataset"}}},
            },
        },
    },
    "deploymentSpec": {
        "executors": {
            "exec-ingest": {
                "container": {
                    "image": "example.org/images@sha256:" + 64 * "0",
                    "command": ["python", "-m", "ingest"],
                    "args": ["--data", "{{$.inputs.parameters['data']}}"],
                }
            },
            "exec-train": {
                "container": {
                    "image": "example.org/images@sha256:" + 64 * "1",
                    "command": ["python", "-m", "train"],
                    "args": ["--steps", "{{$.inputs.parameters['steps']}}"],
                    "resources": {
                        "resourceCpuLimit": "4",
                        "resourceMemoryLimit": "16Gi",
                        "accelerator": {
                            "resourceType": "nvidia.com/gpu",
                            "resourceCount": "1",
                        },
                    },
                }
            },
        }
    },
}

ON_KUBERNETES: Spec = {
    "nodeSelector": {"labels": {"gpu": "h100"}},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "secretAsEnv": [
        {
            "secretName": "bucket",
            "secretNameParameter": {"runtimeValue": {"constant": "bucket"}},
            "keyToEnv": [{"secretKey": "key", "envVar": "BUCKET_KEY"}],
        }
    ],
    "emptyDirMounts": [
        {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "8Gi"}
    ],
    "pvcMount": [
        {
            "constant": "images",
            "pvcNameParameter": {"runtimeValue": {"constant": "images"}},
            "mountPath": "/images",
        }
    ],
}


def on_kubernetes(settings: Spec) -> Spec:
    """The document that gives the executor exec-train `settings`."""
    executors = {"exec-train": settings}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}


PLATFORMS = on_kubernetes(ON_KUBERNETES)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that makes a pipeline file of documents."""

    def write_documents(*documents: Spec) -> Path:
        file = tmp_path / "pipeline.yaml"
        file.write_text(yaml.safe_dump_all(copy.deepcopy(documents)))
        return file

    return write_documents


def change(path: str, value: object) -> Spec:
    """SPEC with `value` at a path of keys, slash between them; None takes the key away."""
    spec = copy.deepcopy(SPEC)
    *folders, last = path.split("/")
    parent = functools.reduce(operator.getitem, folders, spec)
    parent[last] = value
    if value is None:
        del parent[last]
    return spec


def arguments(workflow: dict[str, Any]) -> dict[str, Any]:
    """What the workflow hands to the driver for its components, by name."""
    parameters = workflow["spec"]["arguments"]["parameters"]
    return {parameter["name"]: json.loads(parameter["value"]) for parameter in parameters}


def test_a_run_gets_the_containers_that_the_spec_has(write: Write, release: Release) -> None:
    workflow = argo_workflow(write(SPEC), release, {"data": "gs://images"})
    found = [value for name, value in arguments(workflow).items() if "implementations" in name]
    wanted = [executor["container"] for executor in SPEC["deploymentSpec"]["executors"].values()]
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_a_run_gets_the_kubernetes_settings_that_the_spec_has(
    write: Write, release: Release
) -> None:
    workflow = argo_workflow(write(SPEC, PLATFORMS), release, {"data": "gs://images"})
    assert arguments(workflow)["kubernetes-comp-train"] == ON_KUBERNETES
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    tasks = {task["name"]: task for task in templates["root"]["dag"]["tasks"]}
    driver = {value["name"]: value for value in tasks["train-driver"]["arguments"]["parameters"]}
    assert driver["kubernetes-config"]["value"] == "{{workflow.parameters.kubernetes-comp-train}}"


def test_a_run_gets_its_parameters_and_the_spec_the_defaults(
    write: Write, release: Release
) -> None:
    workflow = argo_workflow(write(SPEC), release, {"data": "gs://images"})
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    driver = templates["entrypoint"]["dag"]["tasks"][0]["arguments"]["parameters"]
    config = next(value["value"] for value in driver if value["name"] == "runtime-config")
    assert json.loads(config) == {"parameterValues": {"data": "gs://images", "steps": 100}}


STEPS = """{all: {cpu: 2, memory: 4, secrets: {s: {key: VARIABLE}}, image_pull_secrets: [login]},
Trainer: {gpus: 1, image: "i:gpu", retries: 3,
node_selector: {pool: gpu}, tolerations: [{key: nvidia.com/gpu, operator: Exists}],
volumes: {claim: /mnt/data}, shared_memory: 4Gi, env: {A: b}}}"""


def test_our_own_pipeline_is_taken(tmp_path: Path, release: Release) -> None:
    """All that can be configured at once, and a parameter of the run."""
    file = tmp_path / "pipeline.yaml"
    images = ("--image", "i:1", "--data", "gs://bucket/images")
    options = ("--kubeflow.steps", STEPS, "--kubeflow.pipeline_root", "minio://mlpipeline/root")
    assert kfp_runner.main(["compile", *images, *options, "--output", str(file)]) == 0
    spec, platform = yaml.safe_load_all(file.read_text())
    workflow = argo_workflow(file, release, {"training_epochs": 3, "data": "gs://other"})
    found = arguments(workflow)
    containers = [value for name, value in found.items() if "implementations" in name]
    wanted = [executor["container"] for executor in spec["deploymentSpec"]["executors"].values()]
    assert sorted(containers, key=str) == sorted(wanted, key=str)
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert found["kubernetes-Trainer"] == settings["Trainer_executor"]
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    tasks = {task["name"] for task in templates["root"]["dag"]["tasks"]}
    assert tasks >= {f"{name}-driver" for name in spec["root"]["dag"]["tasks"]}
    for name, component in spec["components"].items():
        for step in component.get("dag", {}).get("tasks", {}):
            assert f"{step}-driver" in {t["name"] for t in templates[name]["dag"]["tasks"]}
    driver = templates["entrypoint"]["dag"]["tasks"][0]["arguments"]["parameters"]
    config = next(value["value"] for value in driver if value["name"] == "runtime-config")
    given = json.loads(config)["parameterValues"]
    assert (given["training_epochs"], given["data"], given["training_patience"]) == (
        3,
        "gs://other",
        15,
    )


INGEST = "root/dag/tasks/ingest"
EXECUTOR = "deploymentSpec/executors/exec-ingest"
OTHER_TASK = {"taskOutputParameter": {"producerTask": "other", "outputParameterKey": "data"}}

# What is wrong with the file, the file, the step that refuses it, and what it says.
REFUSED: list[tuple[str, list[Spec], str, str]] = [
    (
        "a-job-around-the-spec",
        [{"pipelineSpec": SPEC, "displayName": "images", "runtimeConfig": {}}],
        "upload",
        "unknown template format",
    ),
    ("no-spec", [PLATFORMS], "upload", "unknown template format"),
    ("two-specs", [SPEC, SPEC], "upload", "multiple pipeline specs provided"),
    ("no-name", [change("pipelineInfo", {})], "upload", "unknown template format"),
    (
        "bad-name",
        [change("pipelineInfo/name", "IMAGES")],
        "upload",
        "name should consist of lower case alphanumeric characters",
    ),
    (
        "name-with-a-space",
        [change("pipelineInfo/name", "images 2")],
        "upload",
        "pipeline's name must contain only lowercase alphanumeric characters or '-'",
    ),
    (
        "other-schema-version",
        [change("schemaVersion", "2.0.0")],
        "upload",
        "KFP only supports schema version 2.1.0",
    ),
    ("unknown-field", [change(f"{INGEST}/image", "x")], "upload", "unknown template format"),
    (
        "unknown-component",
        [change(f"{INGEST}/componentRef/name", "comp-other")],
        "compile",
        'cannot find component ref name="comp-other"',
    ),
    (
        "unknown-executor",
        [change("components/comp-ingest/executorLabel", "exec-other")],
        "compile",
        'executor(label="exec-other") not found in deployment config',
    ),
    (
        "unknown-producer",
        [change(f"{INGEST}/inputs/parameters/data", OTHER_TASK)],
        "compile",
        'unknown producer task "other" in DAG',
    ),
    (
        "resolver",
        [change(EXECUTOR, {"resolver": {"outputArtifactQueries": {}}})],
        "compile",
        "non-container and non-importer executor not implemented",
    ),
    (
        "custom-job",
        [change(EXECUTOR, {"customJob": {"customJob": {}}})],
        "compile",
        "non-container and non-importer executor not implemented",
    ),
    (
        "loop-over-artifacts",
        [change(f"{INGEST}/artifactIterator", {"itemInput": "data", "items": {}})],
        "compile",
        "artifact iterator not implemented yet",
    ),
    (
        "unknown-kubernetes-setting",
        [SPEC, on_kubernetes({"nodeSelectors": {}})],
        "compile",
        'unknown field "nodeSelectors"',
    ),
    (
        "argo-template-tag",
        [change(f"{EXECUTOR}/container/args", ["{{inputs.parameters.data}}"])],
        "validate",
        "failed to resolve {{inputs.parameters.data}}",
    ),
    (
        "unknown-dependency",
        [change(f"{INGEST}/dependentTasks", ["other"])],
        "validate",
        "invalid dependency other",
    ),
    (
        "task-name-with-a-dot",
        [change("root/dag/tasks", {"in.gest": SPEC["root"]["dag"]["tasks"]["ingest"]})],
        "validate",
        "invalid dependency",
    ),
    (
        "cycle",
        [change(f"{INGEST}/dependentTasks", ["train"])],
        "validate",
        "cycle",
    ),
]


@pytest.mark.parametrize(
    ("documents", "step", "message"),
    [pytest.param(*case, id=name) for name, *case in REFUSED],
)
def test_what_is_refused(
    write: Write, release: Release, documents: list[Spec], step: str, message: str
) -> None:
    with pytest.raises(Refused) as refusal:
        argo_workflow(write(*documents), release, {"data": "gs://images"})
    assert refusal.value.step == step
    assert message in refusal.value.message


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "parameter data is not optional, yet has neither default value nor user provided"),
        ({"data": 1}, "input parameter data requires type string"),
        ({"data": "", "steps": "1"}, "input parameter steps requires type double or integer"),
        ({"data": "", "epochs": 1}, "parameter(s) provided are not required by pipeline: epochs"),
    ],
    ids=["missing", "string", "number", "unknown"],
)
def test_which_parameters_are_refused(
    write: Write, release: Release, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused) as refusal:
        argo_workflow(write(SPEC), release, parameters)
    assert refusal.value.step == "compile"
    assert message in refusal.value.message
