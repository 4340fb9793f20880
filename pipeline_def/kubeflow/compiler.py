"""Compiles the pipeline to a specification that open-source Kubeflow Pipelines and Vertex AI take.

TFX's compiler writes for Vertex AI, and leaves to the backend what open-source Kubeflow has not
got. What it writes is changed here, a function for each gap; `spec_check` then looks for the rest.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import yaml

from components.errors import UserError
from pipeline_def.config import Config
from pipeline_def.kubeflow.executor_io import RESOLVED_PARAMETER, STORAGE, STORAGE_PARAMETER
from pipeline_def.kubeflow.parameters import RunParameter, check_place, run_parameters
from pipeline_def.kubeflow.platform import add_resources, platform_document, unknown_steps
from pipeline_def.kubeflow.spec_check import check_documents

Target = Literal["oss", "vertex"]

_COMMAND = ["python", "-m", "pipeline_def.kubeflow.entrypoint"]
_DESCRIPTION = "Labelled images to a served model: ingest, validate, train, evaluate, push."
_LOOKUP = "{}-lookup"

# Beam runners that work in the step's own process, where the launcher's copies are.
_LOCAL_RUNNERS = {"FnApiRunner", "DirectRunner", "BundleBasedDirectRunner", "PrismRunner"}

Spec = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out in full, not as references to each other, and texts as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def compile_documents(config: Config, *, target: Target, image: str) -> list[Spec]:
    """Return the specification and, where steps need anything of Kubernetes, the platform's.

    Args:
        config: resolved, as for `create_pipeline`; its `output` is not used.
        target: open-source Kubeflow Pipelines, or Vertex AI.
        image: container image with this repository.

    Raises:
        UserError: the target would refuse it, and why.
    """
    pipeline = _create_pipeline(config)
    spec = _compile(pipeline, image)
    parameters = run_parameters(config)
    for component in pipeline.components:
        if hasattr(component.driver_class, "look_up"):
            _add_lookup(spec, component.id, component.driver_class)
    for parameter in parameters:
        _add_parameter(spec, parameter)
    _check_steps(spec, config)
    direct = target == "vertex" or _is_remote(config.beam_pipeline_args)
    for component in pipeline.components:
        _replace_command(spec, component, parameters, config, direct=direct)
    _name_system_types(spec)
    _tidy(spec, config)
    add_resources(spec, config.kubeflow, target)
    documents = [spec]
    if platform := platform_document(spec, config, target):
        documents.append(platform)
    check_documents(documents, target)
    return documents


def dump_documents(documents: list[Spec]) -> str:
    """Return YAML that is the same for the same pipeline, so that a change shows as a diff."""
    # Long lines: the same text must not be folded elsewhere after a small change.
    return yaml.dump_all(documents, Dumper=_Dumper, width=1_000_000, allow_unicode=True)


def _create_pipeline(config: Config) -> Any:
    # What Google's libraries say about the Python version is nothing a user can act on.
    warnings.filterwarnings("ignore", category=FutureWarning)
    from pipeline_def.pipeline import create_pipeline

    return create_pipeline(dataclasses.replace(config, output=STORAGE))


def _compile(pipeline: Any, image: str) -> Spec:
    """Return what TFX compiles, without the wrapper that only Vertex AI takes."""
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as dag_runner

    runner = dag_runner.KubeflowV2DagRunner(
        dag_runner.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=True)
    )
    job: Spec = runner.run(pipeline, write_out=False)
    spec: Spec = job["pipelineSpec"]
    return spec


def _check_steps(spec: Spec, config: Config) -> None:
    tasks = sorted(spec["root"]["dag"]["tasks"])
    if unknown := unknown_steps(config.kubeflow, tasks):
        raise UserError(
            f"kubeflow.steps names {', '.join(unknown)}: the steps are all, {', '.join(tasks)}."
        )


def _is_remote(beam_args: list[str]) -> bool:
    runners = [text.partition("=")[2] for text in beam_args if text.startswith("--runner=")]
    return bool(runners) and runners[-1] not in _LOCAL_RUNNERS


def _executor(spec: Spec, task: str) -> Spec:
    component = spec["components"][spec["root"]["dag"]["tasks"][task]["componentRef"]["name"]]
    executor: Spec = spec["deploymentSpec"]["executors"][component["executorLabel"]]
    return executor


def _only(inputs: Spec, properties: tuple[str, ...]) -> Spec:
    """Copy the artifacts and those parameters."""
    copied: Spec = json.loads(json.dumps(inputs))
    parameters = copied.get("parameters", {})
    return {**copied, "parameters": {k: v for k, v in parameters.items() if k in properties}}


def _add_lookup(spec: Spec, task: str, driver: type) -> None:
    """Put a step before `task` that looks up what TFX's driver would, and is never cached.

    Its result is a parameter of `task` and so a part of the key of the cache: changed data or a
    new baseline are never taken for the old ones, and the same ones are not worked on again.
    """
    from tfx.utils import name_utils

    name, label = _LOOKUP.format(task), f"{_LOOKUP.format(task)}_executor"
    properties: tuple[str, ...] = driver.LOOKED_UP_FROM  # type: ignore[attr-defined]
    tasks, components = spec["root"]["dag"]["tasks"], spec["components"]
    consumer = tasks[task]
    component = {
        "executorLabel": label,
        "inputDefinitions": _only(components[task].get("inputDefinitions", {}), properties),
        "outputDefinitions": {"parameters": {RESOLVED_PARAMETER: {"parameterType": "STRING"}}},
    }
    components[name] = component
    container = dict(_executor(spec, task)["container"])
    container["args"] = ["--lookup", name_utils.get_full_name(driver)]
    container.pop("lifecycle", None)
    spec["deploymentSpec"]["executors"][label] = {"container": container}
    tasks[name] = {
        "componentRef": {"name": name},
        "taskInfo": {"name": name},
        "inputs": _only(consumer.get("inputs", {}), properties),
        **({"dependentTasks": deps} if (deps := consumer.get("dependentTasks")) else {}),
    }
    consumer["dependentTasks"] = sorted([*consumer.get("dependentTasks", []), name])
    _bind(
        spec,
        task,
        RESOLVED_PARAMETER,
        "STRING",
        {"taskOutputParameter": {"producerTask": name, "outputParameterKey": RESOLVED_PARAMETER}},
    )


def _bind(spec: Spec, task: str, name: str, kind: str, source: Mapping[str, Any]) -> None:
    """Give `task` an input parameter."""
    definitions = spec["components"][task].setdefault("inputDefinitions", {})
    definitions.setdefault("parameters", {})[name] = {"parameterType": kind}
    inputs = spec["root"]["dag"]["tasks"][task].setdefault("inputs", {})
    inputs.setdefault("parameters", {})[name] = dict(source)


def _constants(spec: Spec, task: str) -> dict[str, Any]:
    """Return the execution properties of a task that the specification fixes."""
    parameters = spec["root"]["dag"]["tasks"][task].get("inputs", {}).get("parameters", {})
    return {
        name: source["runtimeValue"]["constant"]
        for name, source in parameters.items()
        if "runtimeValue" in source
    }


def _takes(spec: Spec, task: str, parameter: RunParameter) -> bool:
    if parameter.name == STORAGE_PARAMETER:
        return any(STORAGE in str(value) for value in _constants(spec, task).values())
    return any(task in (step, _LOOKUP.format(step)) for step in parameter.steps)


def _add_parameter(spec: Spec, parameter: RunParameter) -> None:
    """Make `parameter` one of the run, with its default, and give it to the steps that take it."""
    definitions = spec["root"].setdefault("inputDefinitions", {}).setdefault("parameters", {})
    definitions[parameter.name] = parameter.definition()
    for task in spec["root"]["dag"]["tasks"]:
        if not _takes(spec, task, parameter):
            continue
        if parameter.name != STORAGE_PARAMETER:
            check_place(parameter, _constants(spec, task))
        _bind(
            spec, task, parameter.name, parameter.type, {"componentInputParameter": parameter.name}
        )
        if not parameter.setting.path and parameter.name != STORAGE_PARAMETER:
            name = parameter.setting.property
            del spec["root"]["dag"]["tasks"][task]["inputs"]["parameters"][name]
            del spec["components"][task]["inputDefinitions"]["parameters"][name]


def _replace_command(
    spec: Spec, component: Any, parameters: list[RunParameter], config: Config, *, direct: bool
) -> None:
    """Start our entrypoint, and tell it what the launcher does not repeat of the specification."""
    from tfx.utils import name_utils

    inputs = {key: channel.type for key, channel in component.inputs.items()}
    outputs = {key: channel.type for key, channel in component.outputs.items()}
    for task in (component.id, _LOOKUP.format(component.id)):
        if task not in spec["components"]:
            continue
        lookup = task != component.id
        container = _executor(spec, task)["container"]
        container.pop("lifecycle", None)
        container["command"] = list(_COMMAND)
        # TFX writes --executor_class_path first, and so did we with --lookup.
        what = "--lookup" if lookup else "--executor"
        arguments = ["--step", task, what, container["args"][1], "--pipeline", config.name]
        for flag, types in (("--input", inputs), ("--output", {} if lookup else outputs)):
            for key in sorted(types):
                arguments += [flag, f"{key}={name_utils.get_full_name(types[key])}"]
        for name in _integers(spec, task, parameters):
            arguments += ["--integer", name]
        for parameter in parameters:
            if _takes(spec, task, parameter) and parameter.name != STORAGE_PARAMETER:
                arguments += ["--set", str(parameter.setting)]
        arguments += ["--direct"] if direct else []
        arguments += ["--executor_input", "{{$}}"]
        beam = [] if lookup or not _is_beam(component) else ["--", *config.beam_pipeline_args]
        container["args"] = [*arguments, *beam]


def _is_beam(component: Any) -> bool:
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    return issubclass(component.executor_spec.executor_class, BaseBeamExecutor)


def _integers(spec: Spec, task: str, parameters: list[RunParameter]) -> list[str]:
    own = {parameter.name for parameter in parameters}
    definitions = spec["components"][task].get("inputDefinitions", {}).get("parameters", {})
    return sorted(
        name
        for name, definition in definitions.items()
        if definition["parameterType"] == "NUMBER_INTEGER" and name not in own
    )


def _name_system_types(spec: Spec) -> None:
    """Name Kubeflow's own artifact types the way its SDK does, so that the UI draws them."""
    for component in spec["components"].values():
        for side in ("inputDefinitions", "outputDefinitions"):
            for artifact in component.get(side, {}).get("artifacts", {}).values():
                schema = artifact["artifactType"].get("instanceSchema", "")
                title = yaml.safe_load(schema).get("title", "") if schema else ""
                if title.startswith("system."):
                    artifact["artifactType"] = {"schemaTitle": title, "schemaVersion": "0.0.1"}


def _tidy(spec: Spec, config: Config) -> None:
    """Make what a person sees readable: a description, and JSON on one line."""
    spec["pipelineInfo"]["description"] = _DESCRIPTION
    if config.kubeflow.pipeline_root:
        spec["defaultPipelineRoot"] = config.kubeflow.pipeline_root
    for task in spec["root"]["dag"]["tasks"].values():
        for source in task.get("inputs", {}).get("parameters", {}).values():
            value = source.get("runtimeValue", {}).get("constant")
            if isinstance(value, str) and value.startswith(("{\n", "[\n")):
                source["runtimeValue"]["constant"] = json.dumps(json.loads(value), sort_keys=True)
