"""Constructs that a target would refuse or ignore: where it is, why, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline_def.kubeflow.specification import Specification

SENTENCES = {
    # Documents.
    "empty": "The file holds no specification: compile it again.",
    "json-wrapper": "The file is a PipelineJob, with the specification inside: take what is under "
    "pipelineSpec; job settings are given when a run is started.",
    "documents": "The file has {found}: keep the specification and, after it, one document with "
    "the key `platforms` only.",
    "platform": "Vertex AI reads no platform document: remove node_selector, tolerations, secrets, "
    "volumes and shared_memory from kubeflow.steps.",
    "fields": "It is not a PipelineSpec: {reason}. Correct or remove it.",
    # Names, and how tasks hang together.
    "schema-version": "schemaVersion is {found!r}: compile with use_pipeline_spec_2_1, for 2.1.0.",
    "pipeline-name": "The pipeline is named {name!r}: use up to 128 of a-z, 0-9 and -, which is "
    "neither first nor last.",
    "pipeline-root": "The pipeline root is {root}: it must start with {schemes}.",
    "no-tasks": "The pipeline has no tasks: add components.",
    "task-name": "The task {task!r} has a name that Argo refuses: use with_id() with up to 121 "
    "letters, digits and -, a letter first.",
    "task-info": "The task {task} has no taskInfo.name: the driver stops.",
    "component": "The task {task} refers to no component ({name!r}).",
    "executor": "The component of {task} refers to no executor ({label!r}).",
    "dependency": "The task {task} waits for {missing}, which does not exist: add it.",
    "cycle": "Tasks wait for each other ({circle}): break the circle.",
    # What open-source Kubeflow has not implemented.
    "resolver": "{task} is a Resolver, which Kubeflow Pipelines does not have: find the artifact "
    "in a component, as BaselineFinder does.",
    "custom-job": "{task} is a custom job of Vertex AI: make it a container.",
    "artifact-iterator": "{task} loops over artifacts, which is not implemented: loop over "
    "parameters.",
    "pre-cache-check": "{task} has a preCacheCheck hook, which Kubeflow Pipelines ignores, so that "
    "changed data would come from the cache: look it up in a step before.",
    "exit-handler": "The pipeline has an exit handler as TFX compiles it: the tasks in {task} get "
    "no parameters of the run. Watch the run from outside: `kfp_runner.py run --wait`.",
    "importer-condition": "The importer {task} has a condition, which Kubeflow Pipelines refuses: "
    "move it out of the Cond block.",
    "importer-parameter": "The importer {task} takes its URI from {name!r}, which is not an input "
    "that comes from the run: bind it to a parameter of the run.",
    "importer-uri": "The importer {task} has the URI {uri!r}: it needs a scheme, such as gs://.",
    # Parameters.
    "default": "The parameter {name} of the run has no default: write defaultValue to the root's "
    "inputDefinitions.",
    "default-type": "The default of {name} is {value!r}, not a {kind}.",
    "parameter-type": "The parameter {name} of {owner} has no parameterType.",
    "layer-input": "{where} is {given}, which is an input neither of the run nor of the sub-DAG "
    "that it is in.",
    "runtime-value": "{where} has {found} of schema 2.0.0, which are ignored: use `constant`.",
    "null-constant": "{where} is null, which the driver refuses: leave it out.",
    "constant-type": "{where} is {value!r}, not a {kind}.",
    "missing-input": "{task} gets no value for its input {name}.",
    "lost-default": "{task} has a default for its input {name} but not isOptional: Kubeflow "
    "Pipelines loses the default; set isOptional.",
    # Where inputs come from, and artifacts.
    "producer": "{where} comes from {producer!r}, which is not a task.",
    "output": "{where} is {name!r}, which is not an output of {producer}.",
    "artifact-type": "The artifact {name} of {task} has no schemaTitle, nor an instanceSchema with "
    "a title: the launcher needs one.",
    "null-metadata": "The metadata {key} of {task}'s artifact {name} is null, which the launcher "
    "refuses: leave it out.",
    # Containers.
    "image": "{task} has no container image: give --image.",
    "command": "{task} has neither command nor arguments; KFP's launcher cannot use the image's "
    "own: set them.",
    "argument-length": "An argument of {task} has {length:,} bytes with its input; Linux takes "
    "{longest:,}: shorten the execution properties.",
    "placeholder": "An argument of {task} names {name}, which does not exist.",
    "argo-tag": "An argument of {task} holds {tag}…, which Argo takes for a tag of its own and "
    "cannot resolve: write it otherwise.",
    "same-container": "{task} has the same container as {first}: Kubeflow Pipelines would give it "
    "the inputs and outputs of the other; make an argument differ.",
    "accelerator": "{task} asks for the accelerator {kind!r}: here it has a name like {example}; "
    "set kubeflow.steps.{task}.gpu_type.",
    # The platform document.
    "platform-fields": "The platform document is not one of KFP's: {reason}. All of it would be "
    "ignored.",
    "platform-executor": "The platform document has settings for {label}, which no task runs: "
    "correct it.",
    "platform-settings": "The platform document's settings for {label} are not Kubernetes': "
    "{reason}. Correct or remove them.",
    "platform-unread": "The platform document sets {name} for {label}, which no release up to 2.17 "
    "reads: {instead}.",
}


@dataclass(frozen=True)
class Problem:
    """A construct that the target would refuse."""

    code: str
    """Short name of the construct."""
    text: str
    """Where it is, why it is refused, and what to do."""


Rule = Callable[[Specification], Iterator[Problem]]


def problem(code: str, **values: Any) -> Problem:
    """Return the problem of this code, with `values` in its sentence."""
    return Problem(code, SENTENCES[code].format(**values))


def not_of(message: Any, part: Any) -> str | None:
    """Return why `part`, of JSON, is not a protobuf message of this class; None if it is one."""
    from google.protobuf import json_format

    try:
        json_format.ParseDict(part, message())
    except json_format.ParseError as error:
        return str(error).splitlines()[0].rstrip(".")
    return None
