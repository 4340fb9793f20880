"""Rules on the containers of tasks, and on what Kubernetes alone is told of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline_def.kubeflow.check.constructs import Problem, Rule, not_of, problem
from pipeline_def.kubeflow.specification import Spec, Specification

# Linux refuses to start a program with a longer argument (MAX_ARG_STRLEN).
_LONGEST_ARGUMENT = 131_072
# The launcher puts the executor input in place of {{$}}.
_ROOM_FOR_INPUT = 16_384

_PLACEHOLDER = re.compile(r"\{\{\$\.(inputs|outputs)\.(parameters|artifacts)\['([^']+)'\]")

# Settings that no release up to 2.17 reads, and what to do instead.
_UNREAD = {
    "enabledSharedMemory": "mount an emptyDir with medium Memory at /dev/shm",
    "podAffinity": "use nodeAffinity or nodeSelector",
}


def images(specification: Specification) -> Iterator[Problem]:
    """Neither target has an image of its own."""
    for task, container in specification.containers():
        if not container.get("image"):
            yield problem("image", task=task)


def arguments(specification: Specification) -> Iterator[tuple[str, str]]:
    """Yield task and argument for every word of every command."""
    for task, container in specification.containers():
        for argument in (*container.get("command", []), *container.get("args", [])):
            yield task, str(argument)


def argument_lengths(specification: Specification) -> Iterator[Problem]:
    """Linux limits the length of an argument, after the launcher has filled it in."""
    for task, argument in arguments(specification):
        length = len(argument.encode())
        if "{{$}}" in argument:
            given = specification.sources(task, "parameters")
            length += _ROOM_FOR_INPUT + sum(len(str(value).encode()) for value in given.values())
        if length > _LONGEST_ARGUMENT:
            yield problem("argument-length", task=task, length=length, longest=_LONGEST_ARGUMENT)


def placeholders(specification: Specification) -> Iterator[Problem]:
    """The launcher fills in the inputs and outputs of the task, and leaves others as they are."""
    for task, argument in arguments(specification):
        for side, kind, name in _PLACEHOLDER.findall(argument):
            if name not in specification.definitions(task, f"{side[:-1]}Definitions", kind):
                yield problem("placeholder", task=task, name=f"{side}.{kind}['{name}']")


def platform_fields(specification: Specification) -> Iterator[Problem]:
    """The backend drops the whole platform document when it does not know a key of it."""
    from kfp.pipeline_spec import pipeline_spec_pb2

    unknown = sorted(set(specification.platform.get("platforms", {})) - {"kubernetes"})
    for name in unknown:
        yield problem("platform-fields", reason=f"{name!r} is not a platform")
    if reason := not_of(pipeline_spec_pb2.PlatformSpec, specification.platform):
        yield problem("platform-fields", reason=reason)


def platform_settings(specification: Specification) -> Iterator[Problem]:
    """Settings belong to an executor, and are those of Kubernetes that a release reads."""
    kubernetes = specification.platform.get("platforms", {}).get("kubernetes", {})
    executors: Spec = kubernetes.get("deploymentSpec", {}).get("executors", {})
    for label, settings in sorted(executors.items()):
        if label not in specification.executors:
            yield problem("platform-executor", label=label)
        yield from _settings(label, settings)


def _settings(label: str, settings: Spec) -> Iterator[Problem]:
    from kfp.kubernetes import kubernetes_executor_config_pb2

    if reason := not_of(kubernetes_executor_config_pb2.KubernetesExecutorConfig, settings):
        yield problem("platform-settings", label=label, reason=reason)
    for name in sorted(_UNREAD.keys() & settings.keys()):
        yield problem("platform-unread", label=label, name=name, instead=_UNREAD[name])


RULES: tuple[Rule, ...] = (
    images,
    argument_lengths,
    placeholders,
    platform_fields,
    platform_settings,
)
