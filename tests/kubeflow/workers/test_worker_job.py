"""The manifests of several workers, and the states of their Job."""

from typing import Any

import pytest

from pipeline_def.config.kubeflow import StepConfig, Toleration
from pipeline_def.kubeflow.kubernetes_api import Manifest, Pod
from pipeline_def.kubeflow.step_interface import WorkerGroup
from pipeline_def.kubeflow.workers.worker_job import condition, worker_job, worker_service

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
    labels={"kueue.x-k8s.io/queue-name": "team", "cost": "vision"},
    annotations={"note": "a"},
    priority_class="high",
)
OWNER = Pod("images-x7k2p-1234", "kubeflow", "f3c1", "pipeline-runner")


INDEX: Manifest = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {
        "fieldRef": {
            "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        }
    },
}
TF_CONFIG = {
    "name": "TF_CONFIG",
    # Kubernetes replaces the variable by the index.
    "value": '{"cluster": {"worker": ["trainer-01-0.trainer-01:2222", '
    '"trainer-01-1.trainer-01:2222"]}, '
    '"task": {"type": "worker", "index": $(JOB_COMPLETION_INDEX)}}',
}
# Valid by the definitions of Kubernetes 1.34, api/openapi-spec/v3/apis__batch__v1_openapi.json.
WORKER: Manifest = {
    "restartPolicy": "Never",
    "subdomain": "trainer-01",
    "serviceAccountName": "pipeline-runner",
    "containers": [
        {
            "name": "worker",
            "image": "registry/image:1",
            # Kubernetes would replace $(HOME).
            "command": ["python", '{"a": "$$(HOME) $$$$"}'],
            "env": [
                {"name": "TF_GPU_THREAD_MODE", "value": "gpu_private"},
                {
                    "name": "WANDB_API_KEY",
                    "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}},
                },
                INDEX,
                TF_CONFIG,
            ],
            "ports": [{"containerPort": 2222}],
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
    "priorityClassName": "high",
    "volumes": [
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "images-claim"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ],
}


def test_manifest() -> None:
    settings = FULL
    group = WorkerGroup("registry/image:1", settings)
    command = ("python", '{"a": "$(HOME) $$"}')
    annotations = {"sidecar.istio.io/inject": "false", **settings.annotations}
    # Kueue queues the Job as a whole.
    labels = {"labels": {"cost": "vision"}}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": OWNER.name, "uid": OWNER.uid}
    metadata = {"name": "trainer-01", "namespace": "kubeflow", "ownerReferences": [owner]}
    assert worker_job("trainer-01", 2, group, command, OWNER) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "labels": settings.labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "backoffLimit": 0,
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"annotations": annotations, **labels}, "spec": WORKER},
        },
    }
    assert worker_service("trainer-01", OWNER) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": {"job-name": "trainer-01"},
            "publishNotReadyAddresses": True,
            "ports": [{"name": "grpc", "port": 2222}],
        },
    }


def conditions(*found: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": s, "message": f"It is {kind}."} for kind, s in found]
    return {"status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("job", "state", "message"),
    [
        ({"status": {"active": 2}}, "Pending", ""),
        ({"status": {"active": 2, "ready": 1}}, "Running", ""),
        (conditions(("Suspended", "True")), "Suspended", "It is Suspended."),
        (conditions(("Suspended", "False"), ("Failed", "True")), "Failed", "It is Failed."),
        # Other workers may be stopped after the chief is done.
        (
            conditions(("SuccessCriteriaMet", "True"), ("Failed", "True")),
            "Succeeded",
            "It is SuccessCriteriaMet.",
        ),
    ],
)
def test_the_state_of_a_job(job: dict[str, Any], state: str, message: str) -> None:
    assert condition(job) == (state, message)
