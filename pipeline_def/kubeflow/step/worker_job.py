"""The Job of several workers and the Service that names them: manifests, and what a status means.

An indexed Job of Kubernetes itself, as TensorFlow's workers need no more than stable names and
their number. Source: `batch/v1` in api/openapi-spec of Kubernetes 1.34. Plain dictionaries of JSON;
nothing here talks to a cluster.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_def.config.kubeflow import GPU_TYPES, StepConfig
from pipeline_def.kubeflow.kubernetes_api import Manifest

_PORT = 2222
# Kubernetes sets it on each pod of an indexed Job.
_INDEX = "batch.kubernetes.io/job-completion-index"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
# Kueue queues the Job, not its pods.
_OF_JOB = "kueue.x-k8s.io/"
# For a job whose step was killed and could not remove it; until then its log can be read.
_KEPT_SECONDS = 3600


def _without_empty(fields: Mapping[str, Any]) -> Manifest:
    return {name: value for name, value in fields.items() if value}


def worker_job(
    name: str, count: int, step: StepConfig, command: Sequence[str], owner: Manifest
) -> Manifest:
    """Return the manifest of a Job whose workers all run `command`; the chief ends it.

    `owner` is the pod of the step. Worker 0 is the chief. Kubernetes restarts no worker:
    synchronous training cannot continue with the others, so all of them must start again from the
    checkpoint, as the step's `retries` do.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, owner) | {"labels": dict(step.labels)},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": 0,
            # Before Kubernetes 1.31 the Job ends with its last worker.
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": _pod_template(name, count, step, command, owner),
        },
    }


def worker_service(name: str, owner: Manifest) -> Manifest:
    """Return the manifest of the Service by which the workers of a Job find each other."""
    spec = {
        "clusterIP": "None",
        "selector": {"job-name": name},
        # Workers wait for each other before they are ready.
        "publishNotReadyAddresses": True,
        "ports": [{"name": "grpc", "port": _PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name, owner), "spec": spec}


def _metadata(name: str, owner: Manifest) -> Manifest:
    pod = owner["metadata"]
    owned_by = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    return {"name": name, "namespace": pod["namespace"], "ownerReferences": [owned_by]}


def _pod_template(
    name: str, count: int, step: StepConfig, command: Sequence[str], owner: Manifest
) -> Manifest:
    volumes, mounts = _volumes(step)
    container = {
        "name": "worker",
        "image": step.image,
        # Kubernetes would replace $(NAME).
        "command": [word.replace("$", "$$") for word in command],
        "env": [*_environment(step), *_cluster_environment(name, count)],
        "ports": [{"containerPort": _PORT}],
        "resources": _resources(step),
        "volumeMounts": mounts,
    }
    spec = {
        "restartPolicy": "Never",
        # With the host name that Kubernetes gives it, a worker is JOB-INDEX.JOB.
        "subdomain": name,
        "serviceAccountName": owner["spec"].get("serviceAccountName", "default"),
        "containers": [_without_empty(container)],
        "imagePullSecrets": [{"name": name} for name in sorted(step.image_pull_secrets)],
        "nodeSelector": dict(step.node_selector),
        "tolerations": [_without_empty(vars(toleration)) for toleration in step.tolerations],
        "volumes": volumes,
    }
    labels = {k: v for k, v in step.labels.items() if not k.startswith(_OF_JOB)}
    # Istio's proxy would keep workers from each other, and a finished worker running.
    annotations = {"sidecar.istio.io/inject": "false", **step.annotations}
    metadata = _without_empty({"labels": labels, "annotations": annotations})
    return {"metadata": metadata, "spec": _without_empty(spec)}


def _cluster_environment(name: str, count: int) -> list[Manifest]:
    """Return the variables that tell a worker its index and all addresses."""
    cluster = {"worker": [f"{name}-{index}.{name}:{_PORT}" for index in range(count)]}
    task = {"type": "worker", "index": 0}
    text = json.dumps({"cluster": cluster, "task": task})
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{_INDEX}']"}}
    return [
        {"name": _INDEX_VARIABLE, "valueFrom": index},
        # Kubernetes replaces a variable that stands before.
        {"name": "TF_CONFIG", "value": text.replace(": 0}", f": $({_INDEX_VARIABLE})}}")},
    ]


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


def index_of(pod: Mapping[str, Any]) -> int:
    """Return the index of the worker that runs in a pod."""
    return int(pod["metadata"].get("annotations", {}).get(_INDEX, -1))


def condition(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of a Job, and the message of its condition.

    Succeeded, as soon as the chief has, Failed, Suspended, Running, or Pending: no worker runs yet.
    """
    status = job.get("status", {})
    true = {
        condition["type"]: condition.get("message", "")
        for condition in status.get("conditions", [])
        if condition["status"] == "True"
    }
    for kind in ("SuccessCriteriaMet", "Complete", "Failed", "Suspended"):
        if kind in true:
            return {"Failed": kind, "Suspended": kind}.get(kind, "Succeeded"), true[kind]
    return ("Running" if status.get("ready") else "Pending"), ""
