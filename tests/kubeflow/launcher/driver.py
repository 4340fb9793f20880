"""What KFP's driver decides for a task: inputs, outputs, arguments."""

from __future__ import annotations

import copy
import enum
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.kubeflow.launcher.store import local_path
from tests.kubeflow.launcher.values import (
    MISSING,
    TYPES,
    StepError,
    checked_input,
    driver_text,
    normal,
)

if TYPE_CHECKING:
    from tests.kubeflow.launcher.records import Artifact, TaskRun

LOGS = "executor-logs"
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['(.+?)'\]\}\}")


class Release(enum.Enum):
    """Releases of KFP between which what a step sees changed."""

    V2_5 = "2.5"
    V2_17 = "2.17"


class NullParameter(StepError):
    """A parameter of the pipeline is null; a component's optional one is then left out."""


@dataclass
class Scope:
    """What the inputs of tasks may refer to: those of one layer, the root or a sub-DAG."""

    parameters: dict[str, Any]
    constants: dict[str, str]
    tasks: dict[str, TaskRun]
    artifacts: dict[str, Any] = field(default_factory=dict)

    def of_task(self, name: str) -> Scope:
        """Add what only the task `name` sees."""
        return replace(self, constants={**self.constants, "{{$.pipeline_task_name}}": name})


def submitted(root: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of a run and add defaults (v2_template.go, argocompiler/argo.go)."""
    specs = root.get("inputDefinitions", {}).get("parameters", {})
    if extra := sorted(given.keys() - specs.keys()):
        raise ValueError(f"parameter(s) provided are not required by pipeline: {', '.join(extra)}")
    values = {}
    for name, spec in specs.items():
        if name in given:
            values[name] = normal(given[name])
            if type(values[name]) is not TYPES.get(spec.get("parameterType")):
                raise ValueError(f"input parameter {name} requires type {spec['parameterType']}")
        elif "defaultValue" in spec or spec.get("isOptional"):
            values[name] = spec.get("defaultValue")
        else:
            raise ValueError(
                f"parameter {name} is not optional, yet has neither default value nor user "
                "provided value"
            )
    return values


def producers(task: Mapping[str, Any]) -> Iterator[str]:
    """Name the tasks before `task`: said and implied (argocompiler/dag.go)."""
    yield from task.get("dependentTasks", [])
    for kind in ("parameters", "artifacts"):
        for spec in task.get("inputs", {}).get(kind, {}).values():
            for source in spec.values():
                if isinstance(source, dict) and "producerTask" in source:
                    yield source["producerTask"]


def resolve_inputs(
    task: Mapping[str, Any], component: Mapping[str, Any], scope: Scope
) -> dict[str, Any]:
    """Resolve and check inputs as resolveInputs of driver/resolve.go does."""
    definitions = component.get("inputDefinitions", {}).get("parameters", {})
    values: dict[str, Any] = {}
    for name, spec in task.get("inputs", {}).get("parameters", {}).items():
        try:
            values[name] = resolve_parameter(spec, scope)
        except NullParameter:
            if not definitions.get(name, {}).get("isOptional"):
                raise
    for name, definition in definitions.items():
        if name not in values and definition.get("isOptional"):
            continue
        if name not in values and "defaultValue" not in definition:
            message = "neither value nor default value provided for non-optional parameter"
            raise StepError(f'failed to resolve inputs: {message} "{name}"')
        kind = definition.get("parameterType", "PARAMETER_TYPE_ENUM_UNSPECIFIED")
        values[name] = checked_input(name, kind, values.get(name, MISSING))
    artifacts = {
        name: _resolve_artifact(name, spec, scope)
        for name, spec in task.get("inputs", {}).get("artifacts", {}).items()
    }
    return {"parameterValues": values, "artifacts": artifacts}


def resolve_parameter(spec: Mapping[str, Any], scope: Scope) -> Any:
    """Resolve one parameter of a task, or a name in what Kubernetes is told of it."""
    match spec:
        case {"parameterExpressionSelector": _}:
            raise NotImplementedError("parameterExpressionSelector")
        case {"componentInputParameter": name}:
            if name not in scope.parameters:
                raise StepError(f"parent DAG does not have input parameter {name}")
            if scope.parameters[name] is None:
                raise NullParameter(f"the resolved input parameter is null: {name}")
            return scope.parameters[name]
        case {"taskOutputParameter": {"producerTask": task, "outputParameterKey": key}}:
            return scope.tasks[task].parameters.get(key, MISSING)
        case {"runtimeValue": {"constant": value}}:
            if isinstance(value, str) and "{{$.workspace_path}}" in value:
                raise NotImplementedError("workspace")
            return scope.constants.get(value, value) if isinstance(value, str) else value
    raise NotImplementedError(f"an input parameter of {', '.join(spec)}")


def _resolve_artifact(name: str, spec: Mapping[str, Any], scope: Scope) -> Any:
    match spec:
        case {"componentInputArtifact": key}:
            if key not in scope.artifacts:
                raise StepError(f"parent DAG does not have input artifact {key}")
            return copy.deepcopy(scope.artifacts[key])
        case {"taskOutputArtifact": {"producerTask": task, "outputArtifactKey": key}}:
            if key not in scope.tasks[task].outputs:
                raise StepError(
                    f'cannot find output artifact key "{key}" in producer task "{task}"'
                )
            return {"artifacts": [_runtime(scope.tasks[task].outputs[key])]}
    raise NotImplementedError(f"input artifact {name} of {', '.join(spec)}")


def _runtime(artifact: Artifact) -> dict[str, Any]:
    # The name is the id, and of the type an empty schema is left (ToRuntimeArtifact).
    return {
        "name": str(artifact.id),
        "uri": artifact.uri,
        "type": {"instanceSchema": ""},
        "metadata": artifact.metadata,
    }


def provision_outputs(
    component: Mapping[str, Any], task_root: str, release: Release, *, logs: bool
) -> dict[str, Any]:
    """Say where a step writes its outputs (driver/driver.go, provisionOutputs)."""
    definitions = component.get("outputDefinitions", {})
    specs = dict(definitions.get("artifacts", {}))
    if logs:
        specs[LOGS] = {"artifactType": {"schemaTitle": "system.Artifact"}}
    artifacts = {}
    for name, spec in specs.items():
        artifact = {"uri": f"{task_root}/{name}", "type": spec.get("artifactType", {})}
        if "metadata" in spec:
            artifact["metadata"] = spec["metadata"]
        if release is Release.V2_17:
            artifact["name"] = name
        artifacts[name] = {"artifacts": [artifact]}
    old = release is Release.V2_5
    folder = "/tmp/kfp_outputs" if old else local_path(task_root) or "/tmp/kfp_outputs"
    return {
        "artifacts": artifacts,
        "parameters": {
            name: {"outputFile": f"/tmp/kfp/outputs/{name}"}
            for name in definitions.get("parameters", {})
        },
        "outputFile": f"{folder}/output_metadata.json",
    }


def driver_arguments(arguments: list[str], values: Mapping[str, Any]) -> Iterator[str]:
    """Fill in the parameters; new in 2.17 (driver/util.go, resolveContainerArgs)."""
    for argument in arguments:
        if "$.outputs" in argument:
            yield argument
        elif argument.strip().startswith('{"IfPresent":'):
            condition = json.loads(argument)["IfPresent"]
            present = values.get(condition["InputName"]) is not None
            chosen = condition.get("Then" if present else "Else") or []
            for item in [chosen] if isinstance(chosen, str) else chosen:
                yield _fill_parameters(item, values)
        else:
            yield _fill_parameters(argument, values)


def _fill_parameters(argument: str, values: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        # A component's default is not there yet: the launcher adds it.
        if match[1] not in values:
            raise StepError(
                "failed to resolve input parameters: "
                f'parameter "{match[1]}" not found in executor input'
            )
        return driver_text(values[match[1]])

    return _PARAMETER.sub(value, argument)
