"""What only a cluster needs to know: where the pipeline writes, and what each step is given."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from components.contract.configuration import require
from components.contract.kinds import check_types

# Anything else makes KFP's driver panic.
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([KMGT]i|[kMGT])?")

GPU_TYPES = {"oss": "nvidia.com/gpu", "vertex": "NVIDIA_TESLA_T4"}
"""Target → accelerators that a step gets whose `gpu_type` is unset."""

EVERY_STEP = "all"
"""The name under `steps` that stands for every step."""


@dataclass(frozen=True)
class Toleration:
    """A taint of nodes on which a step may run nevertheless, in Kubernetes' terms."""

    key: str = ""
    """Key of the taint; empty: any key."""

    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal: the taint has this `value`. Exists: it may have any value."""

    value: str = ""
    """Value of the taint."""

    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Effect of the taint; empty: any effect."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "kubeflow.steps.tolerations")


@dataclass(frozen=True)
class StepConfig:
    """Resources and settings of one step, or of every step."""

    cpu: float | None = None
    """CPU cores, as request and as limit."""

    memory: float | None = None
    """Memory in GB (10^9 bytes), as request and as limit."""

    gpus: int | None = None
    """Number of accelerators."""

    gpu_type: str | None = None
    """Kind of accelerator. Unset: nvidia.com/gpu on open-source Kubeflow, where it is the name of
    a resource of the nodes; NVIDIA_TESLA_T4 on Vertex AI."""

    image: str | None = None
    """Container image of this step, if not the common one: one with GPU libraries, for example."""

    retries: int | None = None
    """How many times a failed step is started again. Training resumes from its checkpoint."""

    node_selector: dict[str, str] = field(default_factory=dict)
    """Labels that a node must have. This and what follows, but `env`, is for open-source Kubeflow
    only."""

    tolerations: list[Toleration] = field(default_factory=list)
    """Taints of nodes that the step tolerates."""

    image_pull_secrets: list[str] = field(default_factory=list)
    """Kubernetes secrets with the credentials of a private registry."""

    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    """Kubernetes secret → its keys → the environment variables that are set to their values."""

    volumes: dict[str, str] = field(default_factory=dict)
    """Persistent volume claim → folder at which it is mounted."""

    shared_memory: str | None = None
    """Size of /dev/shm in Kubernetes' notation, such as 4Gi. By default, containers have 64 MiB."""

    env: dict[str, str] = field(default_factory=dict)
    """Environment variables; on Vertex AI too."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "kubeflow.steps")
        for name in ("cpu", "memory"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} of a step is {value}: it must be above 0.")
        for name in ("gpus", "retries"):
            value = getattr(self, name)
            require(
                value is None or value >= 0,
                f"{name} of a step is {value}: it must not be negative.",
            )
        require(
            self.shared_memory is None or bool(_QUANTITY.fullmatch(self.shared_memory)),
            f"shared_memory of a step is {self.shared_memory!r}: write it like 4Gi or 512Mi.",
        )
        for claim, folder in self.volumes.items():
            require(
                folder.startswith("/"),
                f"The volume {claim} of a step is mounted at {folder}: give an absolute path.",
            )

    def over(self, general: StepConfig) -> StepConfig:
        """Return `general` with what is set here: values replaced, mappings and lists extended."""
        merged: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            mine, other = getattr(self, item.name), getattr(general, item.name)
            if isinstance(mine, dict):
                merged[item.name] = {**other, **mine}
            elif isinstance(mine, list):
                merged[item.name] = [*other, *mine]
            else:
                merged[item.name] = other if mine is None else mine
        return StepConfig(**merged)


@dataclass(frozen=True)
class KubeflowConfig:
    """How the pipeline runs on Kubeflow Pipelines; a local run ignores all of this."""

    pipeline_root: str | None = None
    """URL below which the cluster keeps what the steps write: gs://, s3:// or minio://. Unset: the
    cluster's default; Vertex AI needs one, here or when a run is started."""

    storage: str | None = None
    """Where pushed models, checkpoints and earlier statistics go: a URL, or a folder on a volume.
    Unset: the pipeline's own folder below the pipeline root. Checkpoints need gs:// or a volume."""

    store_secret: str = "mlpipeline-minio-artifact"
    """Kubernetes secret with the keys accesskey and secretkey of the object store, for the steps
    that read images or pushed models there. Used only where images, `storage` or pipeline root are
    not on gs:// or a volume. The default is the name that Kubeflow gives it; empty: none."""

    steps: dict[str, StepConfig] = field(default_factory=dict)
    """Step → its resources and settings; the name `all` stands for every step."""

    workers: int = 1
    """Number of machines that train together, each with the resources of the step Trainer. 1: the
    step's own pod trains, which needs nothing beside Kubeflow Pipelines. More: the step starts a
    TFJob, for which the cluster needs Kubeflow's training-operator, or a custom job of Vertex
    AI."""

    worker_machine: str = "n1-standard-8"
    """Machine type of each worker on Vertex AI, which gives custom jobs no machine by their cpu and
    memory. N1 machines take every GPU that is attached by name, such as NVIDIA_TESLA_T4."""

    worker_account: str = ""
    """Service account of the workers on Vertex AI; empty: its default. Elsewhere they run as the
    step's own account."""

    project: str = ""
    """Project of Google Cloud for the custom job of several workers; needed on Vertex AI only."""

    region: str = ""
    """Region of Vertex AI for this job, such as europe-west4."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "kubeflow")
        require(
            self.workers >= 1, f"kubeflow.workers is {self.workers}: it must be at least 1 worker."
        )

    def step(self, name: str) -> StepConfig:
        """Return the resources and settings of step `name`."""
        general = self.steps.get(EVERY_STEP, StepConfig())
        return self.steps.get(name, StepConfig()).over(general)

    def lookup(self, name: str, step: str) -> StepConfig:
        """Return those of the lookup `name` of `step`: the same access, but no large machine."""
        own, full = self.step(name), self.step(step)
        return dataclasses.replace(
            own.over(full), cpu=own.cpu, memory=own.memory, gpus=own.gpus, retries=own.retries
        )

    def starter(self, name: str) -> StepConfig:
        """Return those of step `name` where it only starts workers: no large machine for waiting.

        It keeps what it needs to reach artifacts: image, retries, secrets, volumes and variables.
        """
        general, own = self.step(EVERY_STEP), self.step(name)
        return dataclasses.replace(
            own,
            cpu=general.cpu,
            memory=general.memory,
            gpus=None,
            shared_memory=None,
            node_selector=general.node_selector,
            tolerations=general.tolerations,
        )
