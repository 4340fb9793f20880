"""Resources of each step, in the specification or the document for Kubernetes, and workers."""

import operator
from collections.abc import Collection
from typing import Any

from components.contract.configuration import require, to_json
from components.contract.model_files import ONNX
from components.storage.object_store import SCHEMES
from components.trainer.config.model import PACKAGED
from pipeline_def.config.config import Config
from pipeline_def.config.kubeflow import GPU_TYPES, KubeflowConfig, StepConfig
from pipeline_def.kubeflow.specification import (
    LOOKUPS,
    Spec,
    Specification,
    Target,
    executor_label,
    pod_of,
    steps_of,
)
from pipeline_def.kubeflow.step_interface import (
    DEFAULT_ROOT,
    EXTRAS,
    LEARNERS,
    RESOLVED_PARAMETER,
    SETTINGS_VARIABLE,
    STORE_KEYS,
    STORE_KEYS_FOLDER,
    PodSettings,
    check_storage,
)
from pipeline_def.steps import STEPS, STORAGE, TRAINER

_BACKOFF = {"backoffDuration": "30s", "backoffFactor": 2.0}
# For Vertex AI it is the longest pause, for Argo the time since the first attempt.
_LONGEST = {"oss": "2592000s", "vertex": "3600s"}


def add_resources(
    document: Specification,
    config: Config,
    target: Target,
    beam: Collection[str],
    *,
    new_task: bool,
) -> None:
    """Write what the specification itself has of every task: resources, retries, environment.

    The tasks `beam` run Apache Beam.
    """
    trainer = config.kubeflow.step(TRAINER.id)
    for task, definition in document.tasks.items():
        step, container = _step(document, config.kubeflow, task), document.container(task)
        # Before anything else runs, unless the training has an image of its own.
        checks = task in LEARNERS or (task == LOOKUPS and trainer.image in (None, step.image))
        starts_workers = task == TRAINER.id and config.kubeflow.workers > 1
        pod = PodSettings(
            retries=step.retries or 0,
            secrets=sorted(name for keys in step.secrets.values() for name in keys.values()),
            extras=needed_extras(config) if checks else (),
            new_task=new_task and task == LOOKUPS,
            beam_args=tuple(config.beam_pipeline_args) if task in beam else (),
            workers=_worker_settings(config, container["image"]) if starts_workers else None,
        )
        container["image"] = step.image or container["image"]
        if resources := _resources(step, target):
            container["resources"] = resources
        env = dict(step.env)
        if pod != PodSettings():
            # Kubernetes would replace $(NAME).
            env[SETTINGS_VARIABLE] = to_json(pod).replace("$", "\\u0024")
        if env:
            container["env"] = [{"name": k, "value": v} for k, v in sorted(env.items())]
        if step.retries:
            longest = {"backoffMaxDuration": _LONGEST[target]}
            definition["retryPolicy"] = {"maxRetryCount": step.retries, **_BACKOFF, **longest}


def needed_extras(config: Config) -> tuple[str, ...]:
    """Return the extras that the image of the training must have."""
    packaged = config.model.weights == "imagenet" and config.model.name in PACKAGED
    needed = {
        "onnx": ONNX in config.export.formats,
        # The weights of the first one are always there.
        "weights": packaged and config.model.name != PACKAGED[0],
    }
    return tuple(extra for extra in EXTRAS if needed[extra])


def _step(document: Specification, config: KubeflowConfig, task: str) -> StepConfig:
    if task == LOOKUPS:
        resolved = document.component(task)["outputDefinitions"]["parameters"]
        steps = [step for step in STEPS if f"{step}_{RESOLVED_PARAMETER}" in resolved]
        return config.lookups(task, dict.fromkeys(map(pod_of, steps)))
    starts_workers = task == TRAINER.id and config.workers > 1
    return config.starter(task) if starts_workers else config.step(task)


def _resources(step: StepConfig, target: Target) -> Spec:
    resources: Spec = {}
    if step.cpu:
        resources["cpuLimit"] = resources["cpuRequest"] = step.cpu
    if step.memory_gb:
        resources["memoryLimit"] = resources["memoryRequest"] = step.memory_gb
    if step.gpus:
        kind = step.gpu_type or GPU_TYPES[target]
        # Protobuf's JSON has 64-bit integers as text.
        resources["accelerator"] = {"type": kind, "count": str(step.gpus)}
    return resources


def platform_document(document: Specification, config: Config, target: Target) -> Spec | None:
    """Return the second document, `platforms.kubernetes`; None if no step needs it."""
    executors = {}
    root = config.kubeflow.pipeline_root or DEFAULT_ROOT
    # With it, a step keeps its log.
    log = config.kubeflow.store_secret if target == "oss" and root.startswith(SCHEMES) else ""
    for task in sorted(document.tasks):
        step = _step(document, config.kubeflow, task)
        if target == "oss":
            step = step.over(StepConfig(secrets=_store_secrets(config, task, step)))
        if settings := _kubernetes(step, optional="" if log in step.secrets else log):
            executors[executor_label(task)] = settings
    if not executors:
        return None
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}


def _store_secrets(config: Config, task: str, step: StepConfig) -> dict[str, dict[str, str]]:
    """Return the secret of the cluster's own object store, if the task itself opens it.

    Not if the user has set its keys: of two variables of one name, Kubernetes takes the last.
    """
    kubeflow, steps = config.kubeflow, steps_of(task)
    if step.variables & {*STORE_KEYS.values()}:
        return {}
    opened = [option for step in steps for option in STEPS[step].opens]
    places = {option: operator.attrgetter(option)(config) for option in opened}
    if STORAGE in places:
        places[STORAGE] = kubeflow.storage or kubeflow.pipeline_root or DEFAULT_ROOT
    needed = any(str(place).startswith(SCHEMES) for place in places.values())
    return {kubeflow.store_secret: STORE_KEYS} if needed and kubeflow.store_secret else {}


def _kubernetes(step: StepConfig, *, optional: str = "") -> dict[str, Any]:
    """Return a step's settings as kubernetes_executor_config.proto has them.

    A pod starts without the secret `optional`: before 2.15, only a volume can be so.
    `secretName` and `constant` are deprecated there, but the only names all 2.x releases read.
    """
    shm = {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory"}
    settings = {
        "nodeSelector": {"labels": dict(step.node_selector)} if step.node_selector else {},
        "tolerations": [{k: v for k, v in vars(t).items() if v} for t in step.tolerations],
        "podMetadata": {
            name: dict(values)
            for name, values in (("labels", step.labels), ("annotations", step.annotations))
            if values
        },
        "imagePullSecret": [{"secretName": name} for name in sorted(step.image_pull_secrets)],
        "secretAsEnv": [
            {
                "secretName": secret,
                "keyToEnv": [{"secretKey": k, "envVar": v} for k, v in sorted(keys.items())],
            }
            for secret, keys in sorted(step.secrets.items())
        ],
        "secretAsVolume": [
            {"secretName": secret, "mountPath": STORE_KEYS_FOLDER, "optional": True}
            for secret in (optional,)
            if secret
        ],
        "pvcMount": [
            {"constant": claim, "mountPath": folder}
            for claim, folder in sorted(step.volumes.items())
        ],
        # No release up to 2.17 reads enabledSharedMemory.
        "emptyDirMounts": [{**shm, "sizeLimit": size} for size in (step.shared_memory,) if size],
    }
    return {name: value for name, value in settings.items() if value}


def check_workers(config: Config, target: Target) -> None:
    """Raise ConfigurationError if several workers could not start or reach what they share."""
    kubeflow, accelerator = config.kubeflow, config.training.accelerator
    if kubeflow.workers == 1:
        return
    require(
        target == "oss",
        f"kubeflow.workers is {kubeflow.workers}: several workers need open-source "
        "Kubeflow; on Vertex AI use one machine with several GPUs.",
    )
    require(
        config.training.minutes is None,
        f"kubeflow.workers is {kubeflow.workers}, but training.minutes searches on one machine: "
        "remove one of them.",
    )
    require(
        accelerator in ("auto", "workers"),
        f"kubeflow.workers is {kubeflow.workers}, but training.accelerator is {accelerator}, for "
        "one machine only: leave it at auto.",
    )
    root, step = kubeflow.pipeline_root or "", kubeflow.step(TRAINER.id)
    check_storage(kubeflow.storage or root, step, in_place=root.startswith("gs://"))


def _worker_settings(config: Config, image: str) -> StepConfig:
    """Return the settings of the pods that the step Trainer starts."""
    step = config.kubeflow.step(TRAINER.id)
    secrets = _store_secrets(config, TRAINER.id, step)
    return step.over(StepConfig(image=image, secrets=secrets))
