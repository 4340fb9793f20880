"""Rules on the containers of tasks: command, resources, and what Kubernetes is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pipeline_def.kubeflow.check.spec_view import Problem, SpecView

# Linux refuses to start a program with a longer argument (MAX_ARG_STRLEN).
_LONGEST_ARGUMENT = 131_072
# The launcher puts the executor input in place of {{$}}.
_ROOM_FOR_INPUT = 16_384

_PLACEHOLDER = re.compile(r"\{\{\$\.(inputs|outputs)\.(parameters|artifacts)\['([^']+)'\]")
_ARGO_TAG = re.compile(r"\{\{\s*(inputs|outputs|steps|tasks)\.")
_RESOURCE_NAME = re.compile(r"([-a-z0-9]+\.)*[-a-z0-9]+/[-a-zA-Z0-9_.]+")
_VERTEX_ACCELERATOR = re.compile(r"(NVIDIA|TPU)_[A-Z0-9_]+")

_INSTEAD = {
    "enabledSharedMemory": "mount an emptyDir with medium Memory at /dev/shm",
    "podAffinity": "use nodeAffinity or nodeSelector",
}
_UNREAD = frozenset(_INSTEAD)


def commands(view: SpecView) -> Iterator[Problem]:
    """The launcher wraps the command, so that it cannot fall back on the image's own."""
    for task, container in view.containers():
        if not container.get("image"):
            yield Problem("image", f"{task} has no container image: give --image.")
        if not (container.get("command") or container.get("args")) and view.target == "oss":
            yield Problem(
                "command",
                f"{task} has neither command nor arguments; KFP's launcher cannot use the image's "
                "own: set them.",
            )


def arguments(view: SpecView) -> Iterator[Problem]:
    """Linux limits the length of an argument, and the launcher what it fills in."""
    for task, container in view.containers():
        for argument in (*container.get("command", []), *container.get("args", [])):
            length = len(str(argument).encode())
            if "{{$}}" in str(argument):
                length += _ROOM_FOR_INPUT + _input_length(view, task)
            if length > _LONGEST_ARGUMENT:
                yield Problem(
                    "argument-length",
                    f"An argument of {task} has {length:,} bytes with its input; Linux takes "
                    f"{_LONGEST_ARGUMENT:,}: shorten the execution properties.",
                )
            yield from _placeholders(view, task, str(argument))
            if view.target == "oss" and (tag := _ARGO_TAG.search(str(argument))):
                yield Problem(
                    "argo-tag",
                    f"An argument of {task} holds {tag[0]}…, which Argo takes for a tag of its own "
                    "and cannot resolve: write it otherwise.",
                )


def _input_length(view: SpecView, task: str) -> int:
    given = view.tasks[task].get("inputs", {}).get("parameters", {})
    return sum(len(str(source).encode()) for source in given.values())


def _placeholders(view: SpecView, task: str, argument: str) -> Iterator[Problem]:
    for side, kind, name in _PLACEHOLDER.findall(argument):
        side_of = f"{side[:-1]}Definitions"
        if name not in view.definitions(task, side_of, kind):
            yield Problem(
                "placeholder",
                f"An argument of {task} names {side}.{kind}['{name}'], which it has not got.",
            )


def hooks(view: SpecView) -> Iterator[Problem]:
    """Open-source Kubeflow ignores hooks: data that changed would be a hit of the cache."""
    for task, container in view.containers():
        if "lifecycle" in container and view.target == "oss":
            yield Problem(
                "pre-cache-check",
                f"{task} has a preCacheCheck hook, which Kubeflow Pipelines ignores, so that "
                "changed data would come from the cache: look it up in a step before.",
            )


def accelerators(view: SpecView) -> Iterator[Problem]:
    """The two targets name accelerators differently."""
    for task, container in view.containers():
        accelerator = container.get("resources", {}).get("accelerator", {})
        kind = accelerator.get("type")
        if kind is None:
            continue
        wanted, example = (
            (_RESOURCE_NAME, "nvidia.com/gpu")
            if view.target == "oss"
            else (_VERTEX_ACCELERATOR, "NVIDIA_TESLA_T4")
        )
        if not wanted.fullmatch(kind):
            yield Problem(
                "accelerator",
                f"{task} asks for the accelerator {kind!r}: here it has a name like {example}; set "
                f"kubeflow.steps.{task}.gpu_type.",
            )


def pipeline_root(view: SpecView) -> Iterator[Problem]:
    """Steps read and write artifacts on these stores only."""
    root = view.spec.get("defaultPipelineRoot")
    schemes = ("gs://",) if view.target == "vertex" else ("gs://", "s3://", "minio://")
    if root is not None and not root.startswith(schemes):
        yield Problem(
            "pipeline-root",
            f"The pipeline root is {root}: it must start with {' or '.join(schemes)}.",
        )


def platform_fields(view: SpecView) -> Iterator[Problem]:
    """The backend drops the whole platform document when it does not know a key of it."""
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    platforms = view.platform.get("platforms", {})
    reasons = [f"{name!r} is no platform" for name in sorted(set(platforms) - {"kubernetes"})]
    try:
        json_format.ParseDict(view.platform, pipeline_spec_pb2.PlatformSpec())
    except json_format.ParseError as error:
        reasons.append(str(error).splitlines()[0].rstrip("."))
    for reason in reasons:
        yield Problem(
            "platform-fields",
            f"The platform document is none of KFP's: {reason}. All of it would be ignored.",
        )
    place: Any = platforms.get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    for label, settings in sorted(place.items()):
        if label not in view.executors:
            yield Problem(
                "platform-executor",
                f"The platform document has settings for {label}, which no task runs: correct it.",
            )
        yield from _settings(label, settings)
        for name in sorted(_UNREAD & set(settings)):
            yield Problem(
                "platform-unread",
                f"The platform document sets {name} for {label}, which no release up to 2.17 "
                f"reads: {_INSTEAD[name]}.",
            )


def _settings(label: str, settings: dict[str, Any]) -> Iterator[Problem]:
    from google.protobuf import json_format
    from kfp.kubernetes import kubernetes_executor_config_pb2

    try:
        json_format.ParseDict(settings, kubernetes_executor_config_pb2.KubernetesExecutorConfig())
    except json_format.ParseError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        yield Problem(
            "platform-settings",
            f"The platform document's settings for {label} are none of Kubernetes': {reason}. "
            "Correct or remove them.",
        )


def distinct(view: SpecView) -> Iterator[Problem]:
    """The backend stores components by their containers: equal ones share inputs and outputs."""
    seen: dict[str, str] = {}
    for task, container in view.containers():
        name = view.tasks[task]["componentRef"]["name"]
        key = json.dumps(container, sort_keys=True)
        if seen.setdefault(key, name) != name and view.target == "oss":
            yield Problem(
                "same-container",
                f"{task} has the very container of {seen[key]}: Kubeflow Pipelines would give it "
                "that one's inputs and outputs; make an argument differ.",
            )


RULES = (
    commands,
    arguments,
    hooks,
    accelerators,
    pipeline_root,
    platform_fields,
    distinct,
)
