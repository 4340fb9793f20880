"""Gives the Trainer step its workers, where several machines train together.

On open-source Kubeflow the step starts a TFJob. On Vertex AI, TFX's extension starts a custom job
that it finds in `custom_config` (tfx/extensions/google_cloud_ai_platform, training_clients.py, and
the message CustomJob of google-cloud-aiplatform); Vertex AI writes TF_CONFIG.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from components.contract.configuration import from_json, require, to_json
from components.contract.errors import ConfigurationError
from pipeline_def.config.config import Config
from pipeline_def.config.kubeflow import GPU_TYPES, KubeflowConfig, StepConfig
from pipeline_def.kubeflow.compile.platform import store_secrets
from pipeline_def.kubeflow.compile.spec_document import SpecDocument
from pipeline_def.kubeflow.specification import Target
from pipeline_def.kubeflow.step_interface import StepInterface, WorkerGroup
from pipeline_def.kubeflow.workers.artifact_exchange import check_storage
from pipeline_def.steps import TRAINER

_VERTEX = "pipeline_def.kubeflow.workers.vertex_trainer.VertexTrainer"
_CUSTOM_CONFIG = "custom_config"


def check_workers(config: Config, target: Target) -> None:
    """Raise ConfigurationError if several workers could not start or reach what they share."""
    kubeflow, accelerator = config.kubeflow, config.training.accelerator
    if kubeflow.workers == 1:
        return
    require(
        accelerator in ("auto", "workers"),
        f"kubeflow.workers is {kubeflow.workers}, but training.accelerator is {accelerator}, for "
        "one machine only: leave it at auto.",
    )
    if target == "oss":
        _check_shared(kubeflow)
        return
    missing = [name for name in ("project", "region") if not getattr(kubeflow, name)]
    require(
        not missing,
        f"kubeflow.workers is {kubeflow.workers}: the custom job of Vertex AI also needs "
        + " and ".join(f"kubeflow.{name}" for name in missing)
        + ".",
    )


def _check_shared(kubeflow: KubeflowConfig) -> None:
    """Make sure that workers share a folder for checkpoints and can reach artifacts."""
    root, storage = kubeflow.pipeline_root or "", kubeflow.storage or kubeflow.pipeline_root
    check_storage(storage, kubeflow.step(TRAINER.id))
    if str(storage).startswith("gs://") and not root.startswith("gs://"):
        place = root or "the cluster's own store"
        raise ConfigurationError(
            f"kubeflow.workers is {kubeflow.workers}, but artifacts are in "
            f"{place}, which the workers cannot read: set "
            "kubeflow.pipeline_root to gs://…, or kubeflow.storage to a folder on a ReadWriteMany "
            "volume."
        )


def add_workers(document: SpecDocument, config: Config, *, target: Target, image: str) -> None:
    """Make the Trainer step start its workers, if there are several."""
    kubeflow = config.kubeflow
    if kubeflow.workers == 1:
        return
    step = kubeflow.step(TRAINER.id)
    if target == "oss":
        step = step.over(StepConfig(secrets=store_secrets(config, TRAINER.id)))
        group = WorkerGroup(kubeflow.workers, step.image or image, step)
        _change_interface(document, workers=group)
        return
    _change_interface(document, executor=_VERTEX)
    job = custom_job(kubeflow, step, image=step.image or image, name=f"{config.name}-trainer")
    value = document.sources(TRAINER.id, "parameters")[_CUSTOM_CONFIG]["runtimeValue"]
    value["constant"] = json.dumps({**json.loads(value["constant"]), **job}, sort_keys=True)


def _change_interface(document: SpecDocument, **changes: Any) -> None:
    arguments = document.container(TRAINER.id)["args"]
    place = arguments.index("--interface") + 1
    interface = from_json(StepInterface, arguments[place])
    arguments[place] = to_json(dataclasses.replace(interface, **changes))


def custom_job(
    config: KubeflowConfig, step: StepConfig, *, image: str, name: str
) -> dict[str, Any]:
    """Return the keys of `custom_config` that describe the job; the first pool is the chief."""
    spec: dict[str, Any] = {
        "worker_pool_specs": [
            _pool(config, step, image=image, replicas=1),
            _pool(config, step, image=image, replicas=config.workers - 1),
        ],
        # Synchronous training cannot continue without one of them; all start from the checkpoint.
        "scheduling": {"restart_job_on_worker_restart": True},
    }
    if config.worker_account:
        spec["service_account"] = config.worker_account
    # The keys are constants of TFX's extension, which imports google-cloud-aiplatform.
    return {
        "ai_platform_enable_vertex": True,
        "ai_platform_vertex_region": config.region,
        "ai_platform_training_args": {
            "project": config.project,
            "display_name": name,
            "job_spec": spec,
        },
    }


def _pool(config: KubeflowConfig, step: StepConfig, *, image: str, replicas: int) -> dict[str, Any]:
    machine: dict[str, Any] = {"machine_type": config.worker_machine}
    if step.gpus:
        machine["accelerator_type"] = step.gpu_type or GPU_TYPES["vertex"]
        machine["accelerator_count"] = step.gpus
    container: dict[str, Any] = {"image_uri": image}
    if step.env:
        container["env"] = [{"name": k, "value": v} for k, v in sorted(step.env.items())]
    return {"machine_spec": machine, "replica_count": replicas, "container_spec": container}
