"""The manifest of a TFJob against the schema of the resource, and its conditions."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_def.config.kubeflow import StepConfig, Toleration
from pipeline_def.kubeflow.kubernetes_api import Manifest, Pod
from pipeline_def.kubeflow.step_interface import WorkerGroup
from pipeline_def.kubeflow.workers.tf_job import condition, tf_job
from tests.kubeflow.workers.tf_job_schema import TF_JOB, Schema, closed

FULL = StepConfig(
    cpu=0.5,
    memory=32,
    gpus=2,
    node_selector={"pool": "gpu"},
    tolerations=[Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
    image_pull_secrets=["login"],
    secrets={"wandb": {"key": "WANDB_API_KEY"}},
    volumes={"images-claim": "/mnt/images"},
    shared_memory="8Gi",
    env={"TF_GPU_THREAD_MODE": "gpu_private"},
)
OWNER = Pod("images-x7k2p-1234", "kubeflow", "f3c1", "pipeline-runner")


def manifest(settings: StepConfig, *command: str, count: int = 4) -> Manifest:
    group = WorkerGroup(count, "registry/image:1", settings)
    return tf_job("trainer-0123456789ab", group, command or ("python",), OWNER)


def workers(job: Manifest) -> Manifest:
    found: Manifest = job["spec"]["tfReplicaSpecs"]["Worker"]
    return found


def pod(job: Manifest) -> Manifest:
    found: Manifest = workers(job)["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def jsonschema() -> Any:
    # What it checks formats with, which no schema here names, takes two seconds to import.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        return importlib.import_module("jsonschema")


@pytest.mark.parametrize("settings", [StepConfig(), FULL], ids=["nothing", "everything"])
def test_manifests_match_the_schema(settings: StepConfig, jsonschema: Any) -> None:
    job = manifest(settings)
    jsonschema.validate(job, closed(TF_JOB))
    # By hand: the operator's own definition, which describes whole pods, is not ours to keep.
    if definition := os.environ.get("TFJOB_CRD"):
        versions = yaml.safe_load(Path(definition).read_text())["spec"]["versions"]
        [version] = [one for one in versions if one["name"] == "v1"]
        schema: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        jsonschema.validate(job["spec"], closed(schema))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicas": "4"}, "is not of type 'integer'"),
        ({"restartpolicy": "Never"}, "'restartpolicy' was unexpected"),
        ({"restartPolicy": "never"}, "is not one of"),
        ({"template": {"spec": {}}}, "'containers' is a required property"),
    ],
)
def test_the_schema_rejects_mistakes(change: Manifest, message: str, jsonschema: Any) -> None:
    job = manifest(FULL)
    workers(job).update(change)
    with pytest.raises(jsonschema.ValidationError, match=message):
        jsonschema.validate(job, closed(TF_JOB))


def test_workers_get_the_settings_of_the_step() -> None:
    container = pod(manifest(FULL))["containers"][0]
    assert workers(manifest(FULL))["replicas"] == 4
    assert container["image"] == "registry/image:1"
    assert container["resources"] == {
        "requests": {"cpu": "0.5", "memory": "32G"},
        "limits": {"cpu": "0.5", "memory": "32G", "nvidia.com/gpu": "2"},
    }
    assert container["env"] == [
        {"name": "TF_GPU_THREAD_MODE", "value": "gpu_private"},
        {
            "name": "WANDB_API_KEY",
            "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}},
        },
    ]
    assert container["volumeMounts"] == [
        {"name": "claim-0", "mountPath": "/mnt/images"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    assert pod(manifest(FULL))["volumes"] == [
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "images-claim"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ]
    assert pod(manifest(FULL))["nodeSelector"] == {"pool": "gpu"}
    assert pod(manifest(FULL))["serviceAccountName"] == "pipeline-runner"


def test_container_name_for_tf_config() -> None:
    assert [one["name"] for one in pod(manifest(StepConfig()))["containers"]] == ["tensorflow"]


def test_dollar_signs_are_escaped() -> None:
    [container] = pod(manifest(StepConfig(), "python", '{"a": "$(HOME) $$"}'))["containers"]
    assert container["command"] == ["python", '{"a": "$$(HOME) $$$$"}']


def test_the_job_is_owned_by_the_step_pod() -> None:
    assert manifest(StepConfig())["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": OWNER.name, "uid": OWNER.uid}
    ]


def conditions(*found: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": s, "message": f"It is {kind}."} for kind, s in found]
    return {"status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("job", "state"),
    [
        ({}, ""),
        (conditions(), ""),
        (conditions(("Created", "True")), "Created"),
        (conditions(("Created", "True"), ("Running", "True")), "Running"),
        (conditions(("Created", "True"), ("Running", "False"), ("Failed", "True")), "Failed"),
        # The chief is done and another worker was stopped after it.
        (conditions(("Succeeded", "True"), ("Failed", "True")), "Succeeded"),
    ],
)
def test_job_condition(job: dict[str, Any], state: str) -> None:
    assert condition(job) == (state, f"It is {state}." if state else "")
