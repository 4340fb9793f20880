"""Resources of each step: in the specification, and in the document that only Kubernetes reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pipeline_def.config import Config
from pipeline_def.kubeflow.spec_document import Spec, SpecDocument, step_of
from pipeline_def.kubeflow_config import EVERY_STEP, KubeflowConfig, StepConfig

_GPU_TYPES = {"oss": "nvidia.com/gpu", "vertex": "NVIDIA_TESLA_T4"}

_STORE_KEYS = {"accesskey": "AWS_ACCESS_KEY_ID", "secretkey": "AWS_SECRET_ACCESS_KEY"}
_STORE_SCHEMES = ("minio://", "s3://")


def add_resources(document: SpecDocument, config: KubeflowConfig, target: str) -> None:
    """Write CPU, memory, accelerators and environment of every step into the specification."""
    for label, container in document.containers().items():
        name, is_lookup = step_of(label)
        step = config.step(name)
        resources: dict[str, Any] = {}
        if step.cpu:
            resources["cpuLimit"] = resources["cpuRequest"] = step.cpu
        if step.memory:
            resources["memoryLimit"] = resources["memoryRequest"] = step.memory
        if step.gpus and not is_lookup:
            kind = step.gpu_type or _GPU_TYPES[target]
            # Protobuf's JSON has 64-bit integers as text.
            resources["accelerator"] = {"type": kind, "count": str(step.gpus)}
        if resources:
            container["resources"] = resources
        if step.env:
            container["env"] = [{"name": k, "value": v} for k, v in sorted(step.env.items())]


def platform_document(document: SpecDocument, config: Config, target: str) -> Spec | None:
    """Return the second document, `platforms.kubernetes`; None when no step needs it."""
    executors = {}
    for label in document.containers():
        name, _ = step_of(label)
        step = config.kubeflow.step(name)
        if target == "oss":
            step = step.over(StepConfig(secrets=_store_secrets(config, name)))
        if settings := _kubernetes(step):
            executors[label] = settings
    if not executors:
        return None
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}


def _store_secrets(config: Config, step: str) -> dict[str, dict[str, str]]:
    """Return the secret of the cluster's own object store, where the step itself reads from it."""
    kubeflow = config.kubeflow
    models = kubeflow.storage or kubeflow.pipeline_root or _STORE_SCHEMES[0]
    place = {"ImageExampleGen": config.data, "BaselineFinder": models, "Pusher": models}.get(step)
    needed = str(place).startswith(_STORE_SCHEMES)
    return {kubeflow.store_secret: _STORE_KEYS} if needed and kubeflow.store_secret else {}


def _kubernetes(step: StepConfig) -> dict[str, Any]:
    """Return a step's settings as kubernetes_executor_config.proto has them.

    `secretName` and `constant` are deprecated there, but the only names all 2.x releases read.
    """
    settings: dict[str, Any] = {}
    if step.node_selector:
        settings["nodeSelector"] = {"labels": dict(sorted(step.node_selector.items()))}
    if step.tolerations:
        settings["tolerations"] = [
            {k: v for k, v in vars(toleration).items() if v} for toleration in step.tolerations
        ]
    if step.secrets:
        settings["secretAsEnv"] = [
            {
                "secretName": secret,
                "keyToEnv": [
                    {"secretKey": key, "envVar": variable} for key, variable in sorted(keys.items())
                ],
            }
            for secret, keys in sorted(step.secrets.items())
        ]
    if step.volumes:
        settings["pvcMount"] = [
            {"constant": claim, "mountPath": folder}
            for claim, folder in sorted(step.volumes.items())
        ]
    if step.shared_memory:
        # No release up to 2.17 reads enabledSharedMemory.
        shm = {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory"}
        settings["emptyDirMounts"] = [{**shm, "sizeLimit": step.shared_memory}]
    return settings


def unknown_steps(config: KubeflowConfig, tasks: Collection[str]) -> list[str]:
    """Return the names under `steps` that no task has."""
    return sorted(set(config.steps) - set(tasks) - {EVERY_STEP})
