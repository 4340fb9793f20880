"""Rules on what flows between tasks: parameters, artifacts and their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from pipeline_def.kubeflow.check.spec_view import Problem, SpecView

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


def run_parameter_defaults(view: SpecView) -> Iterator[Problem]:
    """A run without a value for a parameter fails; TFX's compiler drops the defaults."""
    for name, definition in sorted(view.run_parameters.items()):
        if definition.get("isOptional"):
            continue
        if definition.get("defaultValue") is None:
            yield Problem(
                "default",
                f"The parameter {name} of the run has no default: write defaultValue to the "
                "root's inputDefinitions.",
            )
        elif not _fits(definition["defaultValue"], definition.get("parameterType", "STRING")):
            yield Problem(
                "default-type",
                f"The default of {name} is {definition['defaultValue']!r}, not a "
                f"{definition['parameterType']}.",
            )


def parameter_types(view: SpecView) -> Iterator[Problem]:
    """Schema 2.1.0 has parameterType; `type` is of 2.0.0, and the driver does not read it."""
    sides = [("the run", view.run_parameters)]
    for task in sorted(view.tasks):
        sides += [
            (task, view.definitions(task, side, "parameters"))
            for side in ("inputDefinitions", "outputDefinitions")
        ]
    for owner, definitions in sides:
        for name, definition in sorted(definitions.items()):
            if "parameterType" not in definition:
                yield Problem(
                    "parameter-type", f"The parameter {name} of {owner} has no parameterType."
                )


def parameter_sources(view: SpecView) -> Iterator[Problem]:
    """Every input parameter comes from somewhere that exists, and has the right type."""
    for task, name, source in view.inputs("parameters"):
        where = f"The parameter {name} of {task}"
        definition = view.definitions(task, "inputDefinitions", "parameters").get(name, {})
        kind = definition.get("parameterType", "")
        yield from _constant(where, source.get("runtimeValue"), kind)
        if "componentInputParameter" in source:
            given = source["componentInputParameter"]
            if given not in view.run_parameters:
                yield Problem("run-parameter", f"{where} is {given}, which the run has not got.")
        if output := source.get("taskOutputParameter"):
            yield from _producer(view, where, output, "parameters", "outputParameterKey")


def _constant(where: str, value: dict[str, Any] | None, kind: str) -> Iterator[Problem]:
    if value is None:
        return
    if "constant" not in value:
        yield Problem(
            "runtime-value",
            f"{where} has {sorted(value)} of schema 2.0.0, which are ignored: use `constant`.",
        )
    elif value["constant"] is None:
        yield Problem("null-constant", f"{where} is null, which the driver refuses: leave it out.")
    elif not _fits(value["constant"], kind):
        yield Problem("constant-type", f"{where} is {value['constant']!r}, not a {kind}.")


def artifact_sources(view: SpecView) -> Iterator[Problem]:
    """Every input artifact is the output of a task that exists and runs before."""
    for task, name, source in view.inputs("artifacts"):
        where = f"The input {name} of {task}"
        if output := source.get("taskOutputArtifact"):
            yield from _producer(view, where, output, "artifacts", "outputArtifactKey")


def _producer(
    view: SpecView, where: str, output: dict[str, str], kind: str, key: str
) -> Iterator[Problem]:
    producer = output.get("producerTask", "")
    if producer not in view.tasks:
        yield Problem("producer", f"{where} comes from {producer!r}, which is no task.")
        return
    if output.get(key) not in view.definitions(producer, "outputDefinitions", kind):
        yield Problem("output", f"{where} is {output.get(key)!r}, which {producer} does not give.")


def required_inputs(view: SpecView) -> Iterator[Problem]:
    """The driver stops a task whose parameters have no value, and does not pass defaults on."""
    for task, definition in sorted(view.tasks.items()):
        given = definition.get("inputs", {}).get("parameters", {})
        wanted = view.definitions(task, "inputDefinitions", "parameters")
        for name, parameter in sorted(wanted.items()):
            if name in given or parameter.get("isOptional"):
                continue
            if parameter.get("defaultValue") is None:
                yield Problem("missing-input", f"{task} gets no value for its input {name}.")
            elif view.target == "oss":
                yield Problem(
                    "lost-default",
                    f"{task} has a default for its input {name} but not isOptional: Kubeflow "
                    "Pipelines loses the default; set isOptional.",
                )


def artifact_types(view: SpecView) -> Iterator[Problem]:
    """The launcher dies of a type without a title, and knows no schemaUri."""
    for task in sorted(view.tasks):
        for side in ("inputDefinitions", "outputDefinitions"):
            for name, artifact in sorted(view.definitions(task, side, "artifacts").items()):
                kind = artifact.get("artifactType", {})
                title = kind.get("schemaTitle")
                if not title and (schema := kind.get("instanceSchema")):
                    document = yaml.safe_load(schema)
                    title = document.get("title") if isinstance(document, dict) else None
                if not title:
                    yield Problem(
                        "artifact-type",
                        f"The artifact {name} of {task} has no schemaTitle, nor an instanceSchema "
                        "with a title: the launcher needs one.",
                    )


def metadata(view: SpecView) -> Iterator[Problem]:
    """The launcher cannot record null."""
    for task in sorted(view.tasks):
        for name, artifact in sorted(
            view.definitions(task, "outputDefinitions", "artifacts").items()
        ):
            for key, value in sorted(artifact.get("metadata", {}).items()):
                if value is None:
                    yield Problem(
                        "null-metadata",
                        f"The metadata {key} of {task}'s output {name} is null, which the launcher "
                        "refuses: leave it out.",
                    )


def iterators(view: SpecView) -> Iterator[Problem]:
    """Open-source Kubeflow has loops over parameters only."""
    for task, definition in sorted(view.tasks.items()):
        if "artifactIterator" in definition and view.target == "oss":
            yield Problem("artifact-iterator", f"{task} loops over artifacts: not implemented.")


RULES = (
    run_parameter_defaults,
    parameter_types,
    parameter_sources,
    artifact_sources,
    required_inputs,
    artifact_types,
    metadata,
    iterators,
)
