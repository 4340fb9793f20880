"""A compiled pipeline, one YAML document and a second one with settings for Kubernetes, and checks.

The checks find what a target would refuse before anything is uploaded. Their rules cover what a
configuration, or an edit of the compiled file, can break; KFP's own backend checks the rest of the
compiler's output in the tests.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from components.contract.errors import ConfigurationError
from pipeline_def import steps
from pipeline_def.config.kubeflow import GPU_TYPES
from pipeline_def.config.yaml_file import read_text

Spec = dict[str, Any]

Target = Literal["oss", "vertex"]
"""Open-source Kubeflow Pipelines, or Vertex AI."""

ROOT_SCHEMES = {"oss": ("gs://", "s3://", "minio://"), "vertex": ("gs://",)}
"""Target → how the URL of its pipeline root begins."""

# Field of the platform document → what sets it in `kubeflow.steps`.
_OF_KUBERNETES = {
    "nodeSelector": "node_selector",
    "tolerations": "tolerations",
    "podMetadata": "labels and annotations",
    "imagePullSecret": "image_pull_secrets",
    "secretAsEnv": "secrets",
    "pvcMount": "volumes",
    "emptyDirMounts": "shared_memory",
}
# Of the parameters of a task, which are one argument of its program: Linux takes 128 KiB. The rest
# is for what KFP adds.
_MOST_BYTES = 100_000
# Parts of names of Kubernetes objects.
_PIPELINE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,126}[a-z0-9])?")
_ACCELERATORS = {
    # The name of a resource of Kubernetes' nodes.
    "oss": r"([-a-z0-9]+\.)*[-a-z0-9]+/[-a-zA-Z0-9_.]+",
    "vertex": r"(NVIDIA|TPU)_[A-Z0-9_]+",
}


def executor_label(task: str) -> str:
    """Return the label of a task's executor, as TFX's compiler writes it."""
    return f"{task}_executor"


LOOKUPS = "Lookups"
"""The task of all lookups."""

PODS = {
    "Statistics-Schema": (steps.STATISTICS_GEN.id, steps.SCHEMA_GEN.id),
    "Validator-Gate": (steps.EXAMPLE_VALIDATOR.id, steps.ANOMALY_GATE.id),
    "Evaluator-Pusher": (
        *(steps.BASELINE_FINDER.id, steps.EVALUATOR.id),
        *(steps.REPORT.id, steps.PUSHER.id),
    ),
}
"""Task → the steps that share its pod, in their order.

A pod costs seconds even if its step is cached. What changes the cache key of one step changes those
after it too, and the reverse repeats what is short beside a training."""

_POD_OF = {part: pod for pod, parts in PODS.items() for part in parts}


def pod_of(name: str) -> str:
    """Return the task that runs a step; any other name stays."""
    return _POD_OF.get(name, name)


def steps_of(task: str) -> tuple[str, ...]:
    """Return the steps that a task runs, or those whose lookups it may run."""
    return tuple(steps.STEPS) if task == LOOKUPS else PODS.get(task, (task,))


def _part(document: Spec, *keys: str) -> Spec:
    """Return a nested mapping; {} if it does not exist."""
    for key in keys:
        part = document.get(key)
        document = part if isinstance(part, dict) else {}
    return document


@dataclass(frozen=True)
class Specification:
    """The two documents; all tasks are in the root."""

    spec: Spec
    platform: Spec = field(default_factory=dict)

    @property
    def tasks(self) -> dict[str, Spec]:
        """The tasks by name."""
        return _part(self.spec, "root", "dag", "tasks")

    @property
    def run_parameters(self) -> dict[str, Spec]:
        """The definitions of the run's parameters."""
        return _part(self.spec, "root", "inputDefinitions", "parameters")

    @property
    def executors(self) -> dict[str, Spec]:
        """The executors by label."""
        return _part(self.spec, "deploymentSpec", "executors")

    @property
    def components(self) -> dict[str, Spec]:
        """The components by name."""
        return _part(self.spec, "components")

    def component(self, task: str) -> Spec:
        """Return the component of a task."""
        return _part(self.components, self.tasks[task].get("componentRef", {}).get("name", ""))

    def container(self, task: str) -> Spec:
        """Return the container of a task; {} if it has none."""
        label = self.component(task).get("executorLabel", "")
        return _part(self.executors, label, "container")


def read_documents(path: str) -> list[Any]:
    """Read the documents of a specification from YAML or JSON."""
    try:
        text = read_text(path)
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"{path} is neither YAML nor JSON: {reason}.") from error


def check_documents(documents: list[Any], target: Target) -> None:
    """Raise `ConfigurationError` with everything that `target` would refuse."""
    if problems := [*_find_problems(documents, target)]:
        name = "Vertex AI" if target == "vertex" else "Kubeflow Pipelines"
        raise ConfigurationError(f"{name} would not run this pipeline: {' '.join(problems)}")


def _find_problems(documents: list[Any], target: Target) -> Iterator[str]:
    if len(documents) not in (1, 2) or not all(isinstance(part, dict) for part in documents):
        yield "The file must contain a specification, and may have a document `platforms` after it."
    elif len(documents) == 2 and target == "vertex":
        executors = _part(documents[1], "platforms", "kubernetes", "deploymentSpec", "executors")
        settings = {key for executor in executors for key in _part(executors, executor)}
        names = [name for key, name in _OF_KUBERNETES.items() if key in settings]
        yield (
            "Vertex AI reads no platform document: remove "
            f"{' and '.join(names) or 'it'}{' from kubeflow.steps' if names else ''}."
        )
    else:
        specification = Specification(*documents)
        unknown = [*_unknown_fields(specification)]
        yield from unknown or _specification_problems(specification, target)


def _unknown_fields(specification: Specification) -> Iterator[str]:
    """Yield fields that KFP does not define; its backend would drop some of them silently."""
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2 as messages

    spec = specification.spec
    parts = [
        ("specification", messages.PipelineSpec, spec),
        ("deploymentSpec", messages.PipelineDeploymentConfig, spec.get("deploymentSpec", {})),
        ("platform document", messages.PlatformSpec, specification.platform),
    ]
    for name, message, part in parts:
        try:
            json_format.ParseDict(part, message())
        except json_format.ParseError as error:
            yield f"The {name} is invalid: {str(error).splitlines()[0].rstrip('.')}."


def _specification_problems(specification: Specification, target: Target) -> Iterator[str]:
    name = specification.spec.get("pipelineInfo", {}).get("name", "")
    if not _PIPELINE_NAME.fullmatch(name):
        yield (
            f"Invalid pipeline name {name!r}: use up to 128 characters of a-z, 0-9 and -, with a "
            "letter or digit at each end."
        )
    root, schemes = specification.spec.get("defaultPipelineRoot"), ROOT_SCHEMES[target]
    if root and not re.match(f"({'|'.join(schemes)})[^/]", root):
        yield (
            f"The pipeline root is {root}: it must start with {' or '.join(schemes)} and a bucket."
        )
    for task in specification.tasks:
        inputs = _part(specification.tasks[task], "inputs", "parameters")
        texts = {name: json.dumps(inputs[name], ensure_ascii=False) for name in inputs}
        sizes = {name: len(text.encode()) for name, text in texts.items()}
        if (size := sum(sizes.values())) > _MOST_BYTES:
            yield (
                f"The parameters of {task} have {size:,} bytes, but a step starts with at most "
                f"{_MOST_BYTES:,}: shorten {max(sizes, key=sizes.__getitem__)}, as by a "
                "validation.schema with fewer values."
            )
        container = specification.container(task)
        if not container.get("image"):
            yield f"{task} has no container image: set --image, or image in kubeflow.steps."
        kind = container.get("resources", {}).get("accelerator", {}).get("type")
        if kind is not None and not re.fullmatch(_ACCELERATORS[target], kind):
            yield (
                f"{task} requests the accelerator {kind!r}: set kubeflow.steps.{task}.gpu_type to "
                f"a name like {GPU_TYPES[target]}."
            )
