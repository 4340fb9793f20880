"""The section `kubeflow`: where a cluster writes, and the resources and settings of each step."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable
from dataclasses import field
from typing import Annotated, Any, Literal

from annotated_types import Gt

from components.contract.configuration import Count, Number, Positive, Text, configuration, require
from components.contract.error_messages import did_you_mean
from components.contract.errors import ConfigurationError

# Anything else makes KFP's driver panic.
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]i|[kMGT])?")
# Without a unit, memory is in GB.
_UNITS = {None: 1e9} | {unit: 1000.0**power for power, unit in enumerate("kMGT", start=1)}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGT", start=1)}

# Of secrets and claims.
_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")

# Go writes smaller numbers with an exponent, which is no quantity of Kubernetes.
_LEAST_MEMORY_GB = 0.001

GPU_TYPES = {"oss": "nvidia.com/gpu", "vertex": "NVIDIA_TESLA_T4"}
"""Target → accelerator of a step whose `gpu_type` is unset."""

EVERY_STEP = "all"
"""The name under `steps` that stands for every step."""


@configuration("kubeflow.steps.tolerations")
class Toleration:
    """A taint that a step tolerates, in Kubernetes' terms."""

    key: Text = ""
    """Key of the taint; empty: any key."""

    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal: the taint has this `value`. Exists: it may have any value."""

    value: Text = ""
    """Value of the taint."""

    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Effect of the taint; empty: any effect."""


@configuration("kubeflow.steps")
class StepConfig:
    """Resources and settings of one step, or of every step."""

    cpu: Annotated[Number, Gt(0)] | None = None
    """CPU cores, as request and as limit."""

    memory: Number | Text | None = None
    """Memory in GB (10^9 bytes) or in Kubernetes' notation, such as 16Gi. It is request and
    limit."""

    gpus: Count | None = None
    """Number of accelerators."""

    gpu_type: Text | None = None
    """Type of accelerator. Unset: nvidia.com/gpu, a resource name of the nodes, on open-source
    Kubeflow; NVIDIA_TESLA_T4 on Vertex AI."""

    image: Text | None = None
    """Container image of this step, such as one with GPU libraries."""

    retries: Count | None = None
    """How many times to restart a failed step. Training resumes from its checkpoint."""

    node_selector: dict[Text, Text] = field(default_factory=dict)
    """Labels that a node must have. This and the following options, except `env`, apply to
    open-source Kubeflow only."""

    tolerations: list[Toleration] = field(default_factory=list)
    """Node taints that the step tolerates."""

    labels: dict[Text, Text] = field(default_factory=dict)
    """Labels of the step's pod, such as kueue.x-k8s.io/queue-name for Kueue. If the step starts
    several workers, labels of Kueue are set on their Job, all others on their pods too."""

    annotations: dict[Text, Text] = field(default_factory=dict)
    """Annotations of the step's pod, or of its workers' pods."""

    image_pull_secrets: list[Text] = field(default_factory=list)
    """Kubernetes secrets with credentials of a private registry."""

    secrets: dict[Text, dict[Text, Text]] = field(default_factory=dict)
    """Kubernetes secret → its keys → environment variables to set to their values."""

    volumes: dict[Text, Text] = field(default_factory=dict)
    """Persistent volume claim → mount path."""

    shared_memory: Text | None = None
    """Size of /dev/shm in Kubernetes' notation, such as 4Gi. Containers have 64 MiB by default."""

    env: dict[Text, Text] = field(default_factory=dict)
    """Environment variables; on Vertex AI too."""

    def __post_init__(self) -> None:
        """Check quantities, names and mount paths."""
        shared, text = self.shared_memory, f"{self.memory}"
        require(
            shared is None or bool(_QUANTITY.fullmatch(shared)),
            f"kubeflow.steps: shared_memory is {shared!r}: write it like 4Gi or 512Mi.",
        )
        require(
            self.memory is None or (self.memory_gb or 0) >= _LEAST_MEMORY_GB,
            f"kubeflow.steps: memory is {text!r}: write it in GB, such as 16, or like 16Gi.",
        )
        for option in ("secrets", "volumes", "image_pull_secrets"):
            for name in getattr(self, option):
                require(
                    bool(_OBJECT_NAME.fullmatch(name)),
                    f"kubeflow.steps: {option} names {name!r}: object names in Kubernetes have "
                    "a-z, 0-9, - and . only, with a letter or digit at each end.",
                )
        for claim, folder in self.volumes.items():
            require(
                folder.startswith("/"),
                f"kubeflow.steps: volumes.{claim} is {folder!r}: the path must be absolute.",
            )

    @property
    def memory_gb(self) -> float | None:
        """Memory in GB (10^9 bytes); None if it is unset, or not a quantity."""
        quantity = _QUANTITY.fullmatch(f"{self.memory}")
        if quantity is None:
            return None
        number, unit = quantity.groups()
        return float(number) * _UNITS[unit] / 1e9

    @property
    def variables(self) -> set[str]:
        """The environment variables that `env` and `secrets` set."""
        return {*self.env}.union(*(keys.values() for keys in self.secrets.values()))

    def mounts(self, path: str) -> bool:
        """Return whether a path lies on one of the volumes."""
        return any(f"{path}/".startswith(f"{v.rstrip('/')}/") for v in self.volumes.values())

    def access(self) -> StepConfig:
        """Return the settings by which a pod reaches its image and the images' places."""
        names = ("image_pull_secrets", "secrets", "volumes", "env")
        return StepConfig(**{name: getattr(self, name) for name in names})

    def over(self, general: StepConfig) -> StepConfig:
        """Return `general` with the settings here: values replaced, mappings and lists extended."""
        merged: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            mine, other = getattr(self, item.name), getattr(general, item.name)
            if isinstance(mine, dict):
                merged[item.name] = {**other, **mine}
            elif isinstance(mine, list):
                merged[item.name] = [*other, *(entry for entry in mine if entry not in other)]
            else:
                merged[item.name] = other if mine is None else mine
        return StepConfig(**merged)


@configuration("kubeflow")
class KubeflowConfig:
    """How the pipeline runs on Kubeflow Pipelines; a local run ignores this section."""

    pipeline_root: Text | None = None
    """URL below which the cluster stores the outputs of steps: gs://, s3:// or minio://. Unset: the
    cluster's default; Vertex AI needs one, here or when a run is started."""

    storage: Text | None = None
    """URL, or folder on a volume, for pushed models, checkpoints and earlier statistics. Unset: the
    pipeline's own folder below the pipeline root. Checkpoints need gs:// or a volume."""

    store_secret: Text = "mlpipeline-minio-artifact"
    """Kubernetes secret with the keys accesskey and secretkey of the object store. Used only where
    images, `storage` or the pipeline root are neither on gs:// nor on a volume. The default is
    Kubeflow's own; empty: none."""

    steps: dict[Text, StepConfig] = field(default_factory=dict)
    """Step → its resources and settings; the name `all` stands for every step. Steps that share a
    pod, such as Evaluator-Pusher, have one name."""

    workers: Positive = 1
    """Machines that share a training; each has the resources of the step Trainer. 1: the step's own
    pod trains, with Kubeflow Pipelines alone. More: the step starts a Job of Kubernetes, for which
    its account needs rights. On Vertex AI use one machine with several GPUs."""

    def check_names(self, steps: Collection[str]) -> None:
        """Raise `ConfigurationError` if `steps` has the name of no step."""
        known = [EVERY_STEP, *sorted(steps)]
        if unknown := sorted(set(self.steps) - set(known)):
            hint = did_you_mean(unknown[0], known)
            hint = hint or f" The steps are {', '.join(known)}."
            raise ConfigurationError(f"kubeflow.steps has an unknown step, {unknown[0]}.{hint}")

    def step(self, name: str) -> StepConfig:
        """Return the resources and settings of step `name`; Tuner inherits those of Trainer."""
        general = self.step("Trainer") if name == "Tuner" else self.steps.get(EVERY_STEP)
        return self.steps.get(name, StepConfig()).over(general or StepConfig())

    def lookups(self, name: str, steps: Iterable[str]) -> StepConfig:
        """Return the settings of the pod `name` of lookups, which reaches what `steps` do."""
        merged = self.step(name)
        for step in steps:
            merged = merged.over(self.step(step).access())
        return merged

    def starter(self, name: str) -> StepConfig:
        """Return the settings of step `name` if it only starts workers and waits for them.

        It needs no large machine, but keeps its access to artifacts.
        """
        step = self.step(name)
        small = dataclasses.replace(self.step(EVERY_STEP), gpus=None, shared_memory=None)
        return StepConfig(image=step.image, retries=step.retries).over(step.access()).over(small)
