"""Compiles the pipeline to a specification that open-source Kubeflow Pipelines and Vertex AI take.

TFX's compiler writes for Vertex AI and relies on features that open-source Kubeflow does not have.
This one describes the parts of the pipeline, gives them the parameters of a run, and writes each
pod once; `check_documents` then looks for what a target would refuse.
"""

import dataclasses
import hashlib
import json
import warnings
from typing import Any

import yaml

from components.contract.artifact_files import uses_other_machines
from components.contract.configuration import to_dict
from components.contract.errors import ConfigurationError
from components.evaluation.baseline_lookup import TRAINING_PROPERTY
from pipeline_def.config.config import Config
from pipeline_def.config.options import list_options
from pipeline_def.kubeflow.compile.parts import (
    TYPES,
    Part,
    constant,
    describe,
    producers,
    write_pods,
)
from pipeline_def.kubeflow.compile.platform import add_resources, check_workers, platform_document
from pipeline_def.kubeflow.specification import (
    LOOKUPS,
    Spec,
    Specification,
    Target,
    check_documents,
    pod_of,
)
from pipeline_def.kubeflow.step_interface import RUN_PARAMETERS, STORAGE, STORAGE_PARAMETER
from pipeline_def.steps import BASELINE_FINDER, TRAINER

_DESCRIPTION = "Labelled images to a served model: ingest, validate, train, evaluate, push."

_TEXTS = {
    "data": "Folder of images, a URL; label/image or split/label/image.",
    "span": "Span to take where data is a pattern with {SPAN} or a date; -1: the newest.",
    STORAGE_PARAMETER: "Where pushed models, checkpoints and statistics go; empty: below the "
    "pipeline root.",
}


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out in full instead of as references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def compile_documents(
    config: Config, *, target: Target, image: str, new_task: bool = False
) -> list[Spec]:
    """Return the specification and, if steps use features of Kubernetes, the platform's document.

    `config` is resolved. With `new_task`, the model may replace one of other labels.
    """
    _check_beam(config)
    check_workers(config, target)
    # Google's libraries warn about the Python version, which users cannot act on.
    warnings.filterwarnings("ignore", category=FutureWarning)
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    from pipeline_def.pipeline import create_pipeline

    components = create_pipeline(dataclasses.replace(config, output=STORAGE)).components
    workers = config.kubeflow.workers
    parts = describe(components, config.name, direct=target == "vertex", workers=workers)
    document = Specification(_start_specification(config))
    _add_run_parameters(document, parts, config)
    _tell_training(parts, config, image)
    write_pods(document, parts, image, cache=config.cache)
    executors = {c.id: c.executor_spec.executor_class for c in components}
    beam = {pod_of(name) for name, kind in executors.items() if issubclass(kind, BaseBeamExecutor)}
    add_resources(document, config, target, beam, new_task=new_task)
    documents = [document.spec]
    if platform := platform_document(document, config, target):
        documents.append(platform)
    check_documents(documents, target)
    return documents


def dump_documents(documents: list[Spec]) -> str:
    """Return YAML that is the same for the same pipeline, so that changes show in a diff."""
    # Long lines: a small change must not fold the text elsewhere.
    return yaml.dump_all(documents, Dumper=_Dumper, width=1_000_000, allow_unicode=True)


def _start_specification(config: Config) -> Spec:
    """Return a specification of schema 2.1, without tasks."""
    from tfx.version import __version__

    root = config.kubeflow.pipeline_root
    return {
        "pipelineInfo": {"name": config.name, "description": _DESCRIPTION},
        "schemaVersion": "2.1.0",
        "sdkVersion": f"tfx-{__version__}",
        **({"defaultPipelineRoot": root} if root else {}),
        "components": {},
        "deploymentSpec": {"executors": {}},
        "root": {"inputDefinitions": {"parameters": {}}, "dag": {"tasks": {}}},
    }


def _add_run_parameters(document: Specification, parts: list[Part], config: Config) -> None:
    """Add all parameters of the run, with their defaults, and give them to their parts."""
    steps = {part.step: part.constants() for part in parts if not part.interface.lookup}
    for parameter in RUN_PARAMETERS:
        takers = [part for part in parts if part.step in parameter.steps]
        default = parameter.read(steps[parameter.step][parameter.place[0]])
        option = f"{parameter.section}.{parameter.place[-1]}"
        text = _TEXTS.get(parameter.name) or list_options()[option].text
        _add_parameter(document, parameter.name, default, takers, text)
        if len(parameter.place) == 1:
            for part in takers:
                del part.parameters[parameter.place[0]]
    storing = [part for part in parts if STORAGE in str([*part.constants().values()])]
    storage, text = config.kubeflow.storage or "", _TEXTS[STORAGE_PARAMETER]
    _add_parameter(document, STORAGE_PARAMETER, storage, storing, text)


def _add_parameter(
    document: Specification, name: str, default: Any, takers: list[Part], text: str
) -> None:
    kind = TYPES[type(default)]
    document.run_parameters[name] = {
        "parameterType": kind,
        "defaultValue": default,
        "description": text,
    }
    for part in takers:
        part.parameters[name] = (kind, {"componentInputParameter": name})


def _tell_training(parts: list[Part], config: Config, image: str) -> None:
    """Tell the lookup of the baseline all that decides on the candidate, which is not yet there.

    These are the steps up to the training, as KFP's cache sees them, and the run's parameters.
    """
    by_pod: dict[str, list[Part]] = {}
    for part in parts:
        if not part.interface.lookup:
            by_pod.setdefault(pod_of(part.step), []).append(part)
    tasks, waiting = dict[str, list[Part]](), [TRAINER.id]
    while waiting:
        task = waiting.pop()
        tasks[task] = by_pod[task]
        waiting += set().union(*map(producers, by_pod[task])) - {LOOKUPS, *tasks}
    deciding = [part for task in sorted(tasks) for part in tasks[task]]
    images = {part.step: config.kubeflow.step(pod_of(part.step)).image for part in deciding}
    seen = [(to_dict(part), images[part.step] or image) for part in deciding]
    digest = hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]
    [finder] = [p for p in parts if p.step == BASELINE_FINDER.id and p.interface.lookup]
    finder.parameters[TRAINING_PROPERTY] = ("STRING", constant(digest))
    for part in deciding:
        finder.parameters |= {
            name: given
            for name, given in part.parameters.items()
            if "componentInputParameter" in given[1]
        }


def _check_beam(config: Config) -> None:
    root = config.kubeflow.pipeline_root or ""
    if uses_other_machines(config.beam_pipeline_args) and not root.startswith("gs://"):
        raise ConfigurationError(
            "beam_pipeline_args names a runner on other machines, which cannot see a step's own "
            "disk: set kubeflow.pipeline_root to a folder on gs://."
        )
