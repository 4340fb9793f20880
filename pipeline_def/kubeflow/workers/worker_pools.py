"""The custom job of Vertex AI, as TFX's extension finds it in Trainer's `custom_config`.

Source: tfx/extensions/google_cloud_ai_platform (training_clients.py) and the message CustomJob of
google-cloud-aiplatform. The first pool is the chief's; Vertex AI writes TF_CONFIG.
"""

from __future__ import annotations

from typing import Any

from pipeline_def.config.kubeflow import GPU_TYPES, KubeflowConfig, StepConfig

# Values of constants of TFX's extension, which imports google-cloud-aiplatform.
_ENABLE_VERTEX = "ai_platform_enable_vertex"
_REGION = "ai_platform_vertex_region"
_JOB = "ai_platform_training_args"
JOB_KEYS = (_ENABLE_VERTEX, _REGION, _JOB)
"""What is added to `custom_config`, and run_fn knows nothing of."""


def custom_job(
    config: KubeflowConfig, step: StepConfig, *, image: str, name: str
) -> dict[str, Any]:
    """Return what is added to `custom_config`.

    Args:
        config: of the cluster.
        step: resources and settings of each worker.
        image: container image of each worker.
        name: display name of the job.
    """
    spec: dict[str, Any] = {
        "worker_pool_specs": [
            _pool(config, step, image=image, replicas=1),
            _pool(config, step, image=image, replicas=config.workers - 1),
        ],
        # Training in step cannot go on without one of them; all start from the checkpoint.
        "scheduling": {"restart_job_on_worker_restart": True},
    }
    if config.worker_account:
        spec["service_account"] = config.worker_account
    job = {"project": config.project, "display_name": name, "job_spec": spec}
    return {_ENABLE_VERTEX: True, _REGION: config.region, _JOB: job}


def _pool(config: KubeflowConfig, step: StepConfig, *, image: str, replicas: int) -> dict[str, Any]:
    machine: dict[str, Any] = {"machine_type": config.worker_machine}
    if step.gpus:
        machine["accelerator_type"] = step.gpu_type or GPU_TYPES["vertex"]
        machine["accelerator_count"] = step.gpus
    container: dict[str, Any] = {"image_uri": image}
    if step.env:
        container["env"] = [{"name": k, "value": v} for k, v in sorted(step.env.items())]
    return {"machine_spec": machine, "replica_count": replicas, "container_spec": container}
