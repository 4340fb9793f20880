"""The TFJob of Kubeflow's training-operator: its manifest, and what its status means.

Source: manifests/base/crds/kubeflow.org_tfjobs.yaml and pkg/controller.v1/tensorflow of
kubeflow/training-operator 1.9. Plain dictionaries of JSON; nothing here talks to a cluster.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_def.config.kubeflow import GPU_TYPES, StepConfig
from pipeline_def.kubeflow.kubernetes_api import TF_JOB_API, Manifest, Pod
from pipeline_def.kubeflow.step_interface import WorkerGroup

# The operator writes TF_CONFIG only into the container of this name.
_CONTAINER = "tensorflow"
# For a job whose step was killed and could not remove it; until then its log can be read.
_KEPT_SECONDS = 3600


def _without_empty(fields: Mapping[str, Any]) -> Manifest:
    return {name: value for name, value in fields.items() if value}


def tf_job(name: str, group: WorkerGroup, command: Sequence[str], owner: Pod) -> Manifest:
    """Return the manifest of a TFJob whose workers all run `command`.

    Worker 0 is the chief. Kubernetes restarts no worker: synchronous training cannot continue with
    the others, so all of them must start again from the checkpoint, as the step's `retries` do.
    """
    replicas = {
        "replicas": group.count,
        "restartPolicy": "Never",
        "template": _pod_template(group, command, owner),
    }
    owned_by = {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}
    return {
        "apiVersion": TF_JOB_API,
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": owner.namespace, "ownerReferences": [owned_by]},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": _KEPT_SECONDS},
            "tfReplicaSpecs": {"Worker": replicas},
        },
    }


def _pod_template(group: WorkerGroup, command: Sequence[str], owner: Pod) -> Manifest:
    step = group.settings
    volumes, mounts = _volumes(step)
    container = {
        "name": _CONTAINER,
        "image": group.image,
        # Kubernetes would replace $(NAME).
        "command": [word.replace("$", "$$") for word in command],
        "env": _environment(step),
        "resources": _resources(step),
        "volumeMounts": mounts,
    }
    spec = {
        "serviceAccountName": owner.service_account,
        "containers": [_without_empty(container)],
        "imagePullSecrets": [{"name": name} for name in sorted(step.image_pull_secrets)],
        "nodeSelector": dict(step.node_selector),
        "tolerations": [_without_empty(vars(one)) for one in step.tolerations],
        "volumes": volumes,
    }
    # Istio's proxy would keep workers from each other, and a finished worker running.
    annotations = {"sidecar.istio.io/inject": "false"}
    return {"metadata": {"annotations": annotations}, "spec": _without_empty(spec)}


def _environment(step: StepConfig) -> list[Manifest]:
    plain = [{"name": name, "value": value} for name, value in sorted(step.env.items())]
    secret = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
        for name, keys in sorted(step.secrets.items())
        for key, variable in sorted(keys.items())
    ]
    return [*plain, *secret]


def _resources(step: StepConfig) -> Manifest:
    amounts: dict[str, str] = {}
    if step.cpu:
        amounts["cpu"] = f"{step.cpu:g}"
    if step.memory_gb:
        amounts["memory"] = f"{step.memory_gb:.12g}G"
    # Kubernetes takes devices as limits, and derives their requests.
    gpus = {step.gpu_type or GPU_TYPES["oss"]: str(step.gpus)} if step.gpus else {}
    return _without_empty({"requests": amounts, "limits": amounts | gpus})


def _volumes(step: StepConfig) -> tuple[list[Manifest], list[Manifest]]:
    """Return volumes and their mounts; volumes are numbered, as names of claims are too long."""
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    for number, (claim, folder) in enumerate(sorted(step.volumes.items())):
        name = f"claim-{number}"
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": name, "mountPath": folder})
    if step.shared_memory:
        memory = {"medium": "Memory", "sizeLimit": step.shared_memory}
        volumes.append({"name": "shm", "emptyDir": memory})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    return volumes, mounts


def worker_pod(job: str, index: int) -> str:
    """Return the name that the operator gives the pod of a worker."""
    return f"{job}-worker-{index}"


def condition(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of a TFJob and the operator's message.

    Created, Running, Restarting, Suspended, Succeeded or Failed; "" until an operator has seen it.
    """
    conditions = job.get("status", {}).get("conditions", [])
    true = {one["type"]: one.get("message", "") for one in conditions if one["status"] == "True"}
    for ended in ("Succeeded", "Failed"):
        if ended in true:
            return ended, true[ended]
    return next(reversed(true.items()), ("", ""))
