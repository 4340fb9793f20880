"""Rules on what flows between tasks: parameters, artifacts and their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from pipeline_def.kubeflow.check.constructs import Problem, Rule, problem
from pipeline_def.kubeflow.specification import Spec, Specification

_KINDS: dict[str, tuple[type, ...]] = {
    "NUMBER_INTEGER": (int, float),
    "NUMBER_DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}


def _fits(value: Any, kind: str) -> bool:
    """Say whether the driver takes `value` for a parameter; for STRING it takes any."""
    if isinstance(value, bool) and kind.startswith("NUMBER"):
        return False
    return kind not in _KINDS or isinstance(value, _KINDS[kind])


def run_parameter_defaults(specification: Specification) -> Iterator[Problem]:
    """A run without a value for a parameter fails; TFX's compiler drops the defaults."""
    for name, definition in sorted(specification.run_parameters.items()):
        value, kind = definition.get("defaultValue"), definition.get("parameterType", "STRING")
        if definition.get("isOptional"):
            continue
        if value is None:
            yield problem("default", name=name)
        elif not _fits(value, kind):
            yield problem("default-type", name=name, value=value, kind=kind)


def parameter_types(specification: Specification) -> Iterator[Problem]:
    """Schema 2.1.0 has parameterType; `type` is of 2.0.0, and the driver does not read it."""
    owned = [("the run", *item) for item in sorted(specification.run_parameters.items())]
    owned += [(task, name, one) for task, _, name, one in specification.defined("parameters")]
    for owner, name, definition in owned:
        if "parameterType" not in definition:
            yield problem("parameter-type", name=name, owner=owner)


def parameter_sources(specification: Specification) -> Iterator[Problem]:
    """Every input parameter comes from somewhere that exists, and has the right type."""
    for task, name, source in specification.inputs("parameters"):
        where = f"The parameter {name} of {task}"
        definitions = specification.definitions(task, "inputDefinitions", "parameters")
        kind = definitions.get(name, {}).get("parameterType", "")
        yield from _constant(where, source.get("runtimeValue"), kind)
        given = source.get("componentInputParameter")
        if given is not None and given not in specification.given("parameters"):
            yield problem("layer-input", where=where, given=given)
        if output := source.get("taskOutputParameter"):
            yield from _producer(specification, where, output, "parameters", "outputParameterKey")


def _constant(where: str, source: Spec | None, kind: str) -> Iterator[Problem]:
    if source is None:
        return
    value = source.get("constant")
    if "constant" not in source:
        yield problem("runtime-value", where=where, found=sorted(source))
    elif value is None:
        yield problem("null-constant", where=where)
    elif not _fits(value, kind):
        yield problem("constant-type", where=where, value=value, kind=kind)


def artifact_sources(specification: Specification) -> Iterator[Problem]:
    """Every input artifact is the output of a task that exists and runs before."""
    for task, name, source in specification.inputs("artifacts"):
        where = f"The input {name} of {task}"
        given = source.get("componentInputArtifact")
        if given is not None and given not in specification.given("artifacts"):
            yield problem("layer-input", where=where, given=given)
        if output := source.get("taskOutputArtifact"):
            yield from _producer(specification, where, output, "artifacts", "outputArtifactKey")


def sub_dag_outputs(specification: Specification) -> Iterator[Problem]:
    """Every artifact that a sub-DAG gives out is the output of one of its tasks."""
    found = specification.layer.get("dag", {}).get("outputs", {}).get("artifacts", {})
    for name, output in sorted(found.items()):
        where = f"The output {name} of {specification.sub_dag}"
        for one in output.get("artifactSelectors", []):
            source = {**one, "producerTask": one.get("producerSubtask", "")}
            yield from _producer(specification, where, source, "artifacts", "outputArtifactKey")


def _producer(
    specification: Specification, where: str, output: dict[str, str], kind: str, key: str
) -> Iterator[Problem]:
    producer, name = output.get("producerTask", ""), output.get(key)
    if producer not in specification.tasks:
        yield problem("producer", where=where, producer=producer)
    elif name not in specification.definitions(producer, "outputDefinitions", kind):
        yield problem("output", where=where, name=name, producer=producer)


def inputs_without_value(specification: Specification) -> Iterator[tuple[str, str, Spec]]:
    """Yield task, name and definition of the input parameters that a task needs and is not given.

    A default does not make a parameter optional.
    """
    for task, side, name, parameter in specification.defined("parameters"):
        given = name in specification.sources(task, "parameters")
        if side == "inputDefinitions" and not given and not parameter.get("isOptional"):
            yield task, name, parameter


def required_inputs(specification: Specification) -> Iterator[Problem]:
    """The driver stops a task of which a parameter has neither a value nor a default."""
    for task, name, parameter in inputs_without_value(specification):
        if parameter.get("defaultValue") is None:
            yield problem("missing-input", task=task, name=name)


def artifact_types(specification: Specification) -> Iterator[Problem]:
    """The launcher dies of a type without a title, and knows no schemaUri."""
    for task, _, name, artifact in specification.defined("artifacts"):
        if not _title(artifact.get("artifactType", {})):
            yield problem("artifact-type", name=name, task=task)


def _title(kind: Spec) -> Any:
    schema = yaml.safe_load(kind.get("instanceSchema", ""))
    return kind.get("schemaTitle") or (schema.get("title") if isinstance(schema, dict) else None)


def metadata(specification: Specification) -> Iterator[Problem]:
    """The launcher cannot record null."""
    for task, _, name, artifact in specification.defined("artifacts"):
        for key, value in sorted(artifact.get("metadata", {}).items()):
            if value is None:
                yield problem("null-metadata", key=key, task=task, name=name)


RULES: tuple[Rule, ...] = (
    run_parameter_defaults,
    parameter_types,
    parameter_sources,
    artifact_sources,
    sub_dag_outputs,
    required_inputs,
    artifact_types,
    metadata,
)
