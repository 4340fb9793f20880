"""Compiles the pipeline to a specification that open-source Kubeflow Pipelines and Vertex AI take.

TFX's compiler writes for Vertex AI and relies on features that open-source Kubeflow does not have.
Each function here closes one of these gaps; `spec_check` then looks for the rest.
"""

import dataclasses
import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from components.contract.errors import ConfigurationError
from pipeline_def.config.config import Config
from pipeline_def.config.options import list_options
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.kubeflow.compile.platform import (
    add_resources,
    check_workers,
    platform_document,
    worker_group,
)
from pipeline_def.kubeflow.compile.pods import share_pods, tell_training, write_commands
from pipeline_def.kubeflow.compile.tasks import add_lookup, describe, runs_beam
from pipeline_def.kubeflow.spec_check import check_documents, check_name
from pipeline_def.kubeflow.specification import (
    Spec,
    Specification,
    Target,
    parts_of,
    pod_of,
    step_of,
)
from pipeline_def.kubeflow.step_interface import (
    AS_COMPILED,
    LEARNERS,
    LEFT_OUT,
    RECIPE_PARAMETER,
    RUN_PARAMETERS,
    STORAGE,
    STORAGE_PARAMETER,
    PodSettings,
    Recipes,
    RunParameter,
    StepInterface,
    get_value,
    set_value,
    uses_other_machines,
)
from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN, PUSHER, TRAINER

_DESCRIPTION = "Labelled images to a served model: ingest, validate, train, evaluate, push."

_TYPES = {str: "STRING", int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE"}

_TEXTS = {
    "data": "Folder of images, a URL; label/image or split/label/image.",
    "span": "Span to take where data is a pattern with {SPAN} or a date; -1: the newest.",
    STORAGE_PARAMETER: "Where pushed models, checkpoints and statistics go; empty: below the "
    "pipeline root.",
    RECIPE_PARAMETER: "Recipe of the training: small, photos, transfer or cifar. Values that the "
    "pipeline or the run sets by itself stay.",
}
# Section of the options that a step's parameters replace.
_SECTIONS = {EXAMPLE_GEN.id: "ingest", TRAINER.id: "training", EVALUATOR.id: "evaluation"}


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out in full instead of as references, and multi-line texts as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def compile_documents(
    config: Config, recipes: Recipes | None = None, *, target: Target, image: str
) -> list[Spec]:
    """Return the specification and, if steps use features of Kubernetes, the platform's document.

    `config` is resolved. A run chooses from `recipes`; with None it has no such parameter.
    """
    check_name(config.name)
    _check_beam(config)
    check_workers(config, target)
    pipeline = _create_pipeline(config)
    document = Specification(_compile(pipeline, image))
    options = _leave_out(document)
    for component in pipeline.components:
        add_lookup(document, component)
    _add_run_parameters(document, config, recipes)
    interfaces: dict[str, StepInterface] = {}
    for component in pipeline.components:
        interfaces |= describe(
            document,
            component,
            recipes=recipes or {},
            direct=target == "vertex",
            workers=config.kubeflow.workers,
        )
    _name_system_types(document)
    _tidy(document, config)
    interfaces = share_pods(document, interfaces)
    write_commands(document, interfaces)
    settings = _pod_settings(document, config, pipeline.components, options, image)
    add_resources(document, config.kubeflow, target, settings)
    tell_training(document)
    documents = [document.spec]
    if platform := platform_document(document, config, target):
        documents.append(platform)
    check_documents(documents, target)
    return documents


def dump_documents(documents: list[Spec]) -> str:
    """Return YAML that is the same for the same pipeline, so that changes show in a diff."""
    # Long lines: a small change must not fold the text elsewhere.
    return yaml.dump_all(documents, Dumper=_Dumper, width=1_000_000, allow_unicode=True)


def _create_pipeline(config: Config) -> Any:
    # Google's libraries warn about the Python version, which users cannot act on.
    warnings.filterwarnings("ignore", category=FutureWarning)
    from pipeline_def.pipeline import create_pipeline

    return create_pipeline(dataclasses.replace(config, output=STORAGE))


def _compile(pipeline: Any, image: str) -> Spec:
    """Return TFX's specification without the wrapper that only Vertex AI takes."""
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as dag_runner

    runner = dag_runner.KubeflowV2DagRunner(
        dag_runner.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=True)
    )
    job: Spec = runner.run(pipeline, write_out=False)
    spec: Spec = job["pipelineSpec"]
    return spec


def _leave_out(document: Specification) -> dict[str, dict[str, Any]]:
    """Blank the options that change no result; return step → place → value."""
    options: dict[str, dict[str, Any]] = {}
    for step in document.tasks.keys() & LEFT_OUT:
        for name, *keys in LEFT_OUT[step]:
            source, path = document.sources(step, "parameters")[name]["runtimeValue"], tuple(keys)
            value = get_value(source["constant"], path)
            options.setdefault(step, {})[".".join((name, *keys))] = value
            source["constant"] = set_value(source["constant"], path, None)
    return options


def _pod_settings(
    document: Specification,
    config: Config,
    components: Iterable[Any],
    options: Mapping[str, Mapping[str, Any]],
    image: str,
) -> dict[str, PodSettings]:
    """Return task → what its pod is told in its environment, but for its retries."""
    running_beam = {pod_of(component.id) for component in components if runs_beam(component)}
    return {
        task: PodSettings(
            beam_args=config.beam_pipeline_args if task in running_beam else (),
            workers=worker_group(config, image) if task == TRAINER.id else None,
            tracking=config.tracking if task == pod_of(PUSHER.id) else TrackingConfig(),
            options={s: options[s] for s in map(step_of, parts_of(task)) if s in options},
        )
        for task in document.tasks
    }


def _add_run_parameters(document: Specification, config: Config, recipes: Recipes | None) -> None:
    """Add all parameters of the run, with their defaults, and give them to their tasks."""
    for parameter in RUN_PARAMETERS:
        tasks = [task for task in document.tasks if step_of(task) in parameter.steps]
        properties = document.constants(parameter.step)
        default, text = parameter.read(properties[parameter.place[0]]), _describe(parameter)
        if parameter.keeps_compiled(AS_COMPILED):
            # A default that a user may mean could not be told from one that nobody has chosen.
            text += f" {AS_COMPILED}: {default}, or what the parameter {RECIPE_PARAMETER} says."
            default = type(default)(AS_COMPILED)
        _add_parameter(document, parameter.name, default, tasks, text)
        if len(parameter.place) == 1:
            for task in tasks:
                document.unbind(task, parameter.place[0])
    storing = [
        task
        for task in document.tasks
        if any(STORAGE in str(value) for value in document.constants(task).values())
    ]
    _add_parameter(document, STORAGE_PARAMETER, config.kubeflow.storage or "", storing)
    if recipes:
        learning = [task for task in LEARNERS if task in document.tasks]
        _add_parameter(document, RECIPE_PARAMETER, config.training.recipe, learning)


def _describe(parameter: RunParameter) -> str:
    option = f"{_SECTIONS[parameter.step]}.{parameter.place[-1]}"
    return _TEXTS.get(parameter.name) or list_options()[option].text


def _add_parameter(
    document: Specification, name: str, default: Any, tasks: list[str], text: str | None = None
) -> None:
    kind = _TYPES[type(default)]
    root = document.spec["root"].setdefault("inputDefinitions", {}).setdefault("parameters", {})
    root[name] = {
        "parameterType": kind,
        "defaultValue": default,
        "description": text or _TEXTS[name],
    }
    for task in tasks:
        document.bind(task, name, kind, {"componentInputParameter": name})


def _check_beam(config: Config) -> None:
    root = config.kubeflow.pipeline_root or ""
    if uses_other_machines(config.beam_pipeline_args) and not root.startswith("gs://"):
        raise ConfigurationError(
            "beam_pipeline_args names a runner on other machines, which cannot see a step's own "
            "disk: set kubeflow.pipeline_root to a folder on gs://."
        )


def _name_system_types(document: Specification) -> None:
    """Name Kubeflow's own artifact types as its SDK does, so that the interface draws them."""
    for task in document.tasks:
        for side in ("inputDefinitions", "outputDefinitions"):
            for artifact in document.definitions(task, side, "artifacts").values():
                title = yaml.safe_load(artifact["artifactType"]["instanceSchema"])["title"]
                if title.startswith("system."):
                    artifact["artifactType"] = {"schemaTitle": title, "schemaVersion": "0.0.1"}


def _tidy(document: Specification, config: Config) -> None:
    """Add what people see: a description, the pipeline root, and JSON on one line."""
    document.spec["pipelineInfo"]["description"] = _DESCRIPTION
    if config.kubeflow.pipeline_root:
        document.spec["defaultPipelineRoot"] = config.kubeflow.pipeline_root
    for task in document.tasks:
        for name, value in document.constants(task).items():
            if isinstance(value, str) and value.startswith(("{\n", "[\n")):
                text = json.dumps(json.loads(value), sort_keys=True)
                document.sources(task, "parameters")[name]["runtimeValue"]["constant"] = text
