"""The manifest of a TFJob, and its conditions."""

from typing import Any

import pytest

from pipeline_def.config.kubeflow import StepConfig, Toleration
from pipeline_def.kubeflow.kubernetes_api import Manifest, Pod
from pipeline_def.kubeflow.step_interface import WorkerGroup
from pipeline_def.kubeflow.workers.tf_job import condition, tf_job

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


# Valid by the resource's definition in kubeflow/training-operator 1.9.0,
# manifests/base/crds/kubeflow.org_tfjobs.yaml.
WORKER: Manifest = {
    "serviceAccountName": "pipeline-runner",
    "containers": [
        {
            # The operator writes TF_CONFIG only into a container of this name.
            "name": "tensorflow",
            "image": "registry/image:1",
            # Kubernetes would replace $(HOME).
            "command": ["python", '{"a": "$$(HOME) $$$$"}'],
            "env": [
                {"name": "TF_GPU_THREAD_MODE", "value": "gpu_private"},
                {
                    "name": "WANDB_API_KEY",
                    "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}},
                },
            ],
            "resources": {
                "requests": {"cpu": "0.5", "memory": "32G"},
                "limits": {"cpu": "0.5", "memory": "32G", "nvidia.com/gpu": "2"},
            },
            "volumeMounts": [
                {"name": "claim-0", "mountPath": "/mnt/images"},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
        }
    ],
    "imagePullSecrets": [{"name": "login"}],
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "volumes": [
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "images-claim"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ],
}
PLAIN_WORKER: Manifest = {
    "serviceAccountName": "pipeline-runner",
    "containers": [{key: WORKER["containers"][0][key] for key in ("name", "image", "command")}],
}


@pytest.mark.parametrize(("settings", "worker"), [(FULL, WORKER), (StepConfig(), PLAIN_WORKER)])
def test_manifest(settings: StepConfig, worker: Manifest) -> None:
    group = WorkerGroup(4, "registry/image:1", settings)
    command = ("python", '{"a": "$(HOME) $$"}')
    template = {
        "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": worker,
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": OWNER.name, "uid": OWNER.uid}
    assert tf_job("trainer-0123456789ab", group, command, OWNER) == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {
            "name": "trainer-0123456789ab",
            "namespace": "kubeflow",
            "ownerReferences": [owner],
        },
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 3600},
            "tfReplicaSpecs": {
                "Worker": {"replicas": 4, "restartPolicy": "Never", "template": template}
            },
        },
    }


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
