"""Translates between KFP's launcher and TFX's executors: the input of a step, and its output.

Steps that share a pod get what the launcher gave the pod, and what those before them made.

Plain dictionaries of JSON; nothing here imports TFX. The launcher's side is KFP's backend/src/v2
(driver and component), TFX's is kubeflow_v2_entrypoint_utils.
"""

import contextlib
import copy
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.contract.errors import ConfigurationError, UserError
from pipeline_def.kubeflow.executor_input import artifacts_of, local_path, remote_uri, storage_of
from pipeline_def.kubeflow.step_interface import (
    RESOLVED_PARAMETER,
    RUN_PARAMETERS,
    STORAGE,
    STORAGE_PARAMETER,
    StepInterface,
    is_integer,
    set_value,
)


def prepare_input(executor_input: Mapping[str, Any], interface: StepInterface) -> dict[str, Any]:
    """Return the executor input as TFX takes it.

    Artifact types are restored, URIs are local, parameters of the run are moved into the execution
    properties they belong to, and outputs of the launcher's own are dropped.
    """
    prepared = copy.deepcopy(dict(executor_input))
    inputs, outputs = prepared.setdefault("inputs", {}), prepared.setdefault("outputs", {})
    storage = storage_of(executor_input, interface.pipeline)
    inputs["artifacts"] = _restore_types(inputs.get("artifacts", {}), interface.inputs)
    outputs["artifacts"] = _restore_types(outputs.get("artifacts", {}), interface.outputs)
    for artifact in artifacts_of(prepared):
        if not interface.direct:
            artifact["uri"] = local_path(artifact["uri"])
        # TFX looks artifacts up by a hash of their names.
        artifact["name"] = artifact.get("name") or artifact["uri"]
    properties = _set_run_values(inputs.get("parameterValues", {}), interface)
    inputs["parameterValues"] = {
        name: _fill_in_storage(value, storage) for name, value in properties.items()
    }
    return prepared


def _restore_types(values: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Give artifacts the types of the specification; KFP's driver blanks those of inputs."""
    typed = {}
    for key, path in types.items():
        artifacts = values.get(key, {}).get("artifacts", [])
        if not artifacts:
            raise ConfigurationError(
                f"The step got no artifact {key!r}: did the step that produces it run?"
            )
        schema = {"instanceSchema": f"title: {path}\n"}
        typed[key] = {"artifacts": [{**artifact, "type": schema} for artifact in artifacts]}
    return typed


def _set_run_values(given: Mapping[str, Any], interface: StepInterface) -> dict[str, Any]:
    """Return the compiled execution properties, updated by the parameters of the run."""
    # The launcher writes the double 5.0 as 5; the interface names the integers.
    values = {key: float(v) if is_integer(v) else v for key, v in given.items()}
    parameters = [p for p in RUN_PARAMETERS if p.name in values and interface.step in p.steps]
    of_the_run = {STORAGE_PARAMETER, RESOLVED_PARAMETER, *(p.name for p in parameters)}
    properties = {key: value for key, value in values.items() if key not in of_the_run}
    try:
        for parameter in parameters:
            (name, *keys), value = parameter.place, values[parameter.name]
            if parameter.unset is not None and value is not None:
                value = None if value == parameter.unset else to_integer(value, parameter.name)
            properties[name] = set_value(properties.get(name), tuple(keys), value)
        resolved = json.loads(str(values.get(RESOLVED_PARAMETER) or "{}"))
    except ConfigurationError:
        raise
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"A parameter of the run has no place in the properties of {interface.step} "
            f"({type(error).__name__}: {error}): was the pipeline compiled from other code?"
        ) from error
    return properties | {key: value for key, value in resolved.items() if value is not None}


def _fill_in_storage(value: Any, storage: str | None) -> Any:
    if not isinstance(value, str) or STORAGE not in value:
        return value
    if storage is None:
        raise ConfigurationError(
            "The pipeline root does not tell where pushed models go: set the parameter storage "
            "of the run, or kubeflow.storage when compiling."
        )
    return value.replace(STORAGE, storage)


def to_integer(value: Any, place: str) -> int:
    """Return an integer that the launcher gives as a double."""
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigurationError(f"{place} is {value!r}: it must be an integer.") from error


def finish_output(executor_output: dict[str, Any], *, direct: bool) -> dict[str, Any]:
    """Make TFX's executor output what the launcher takes; return it.

    URIs are remote again, and metadata without a value is dropped: the launcher rejects null.
    """
    for artifact in artifacts_of({"outputs": executor_output}):
        if not direct:
            artifact["uri"] = remote_uri(artifact["uri"])
        artifact["metadata"] = {
            name: value
            for name, value in artifact.get("metadata", {}).items()
            if value is not None and (not isinstance(value, float) or math.isfinite(value))
        }
    return executor_output


def make_output_folders(executor_input: Mapping[str, Any]) -> None:
    """Make a folder for each output without a local copy: launchers after 2.17 ask for one.

    Lookups write no artifact, and steps may write to the remote URI.
    """
    for artifact in artifacts_of({"outputs": executor_input["outputs"]}):
        with contextlib.suppress(UserError, OSError):
            os.makedirs(local_path(artifact["uri"]), exist_ok=True)


@dataclass
class SharedPod:
    """The message of the pod, and the outputs of the parts that have run."""

    given: Mapping[str, Any]
    """Executor input of the launcher."""
    made: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"artifacts": {}, "parameterValues": {}}
    )
    """Executor output of the pod, with remote URIs."""

    def input_of(self, part: StepInterface) -> dict[str, Any]:
        """Return the executor input of a part, as it would be in a pod of its own."""
        part_input = copy.deepcopy(dict(self.given))
        inputs, outputs = part_input["inputs"], part_input["outputs"]
        prefix = part.shared("")
        inputs["parameterValues"] = {
            name.removeprefix(prefix): value
            for name, value in inputs["parameterValues"].items()
            if name.startswith(prefix)
        }
        for name, output in part.received.items():
            kind = "artifacts" if output in self.made["artifacts"] else "parameterValues"
            inputs[kind][name] = copy.deepcopy(self.made[kind][output])
        needed = ((inputs, part.inputs), (outputs, part.outputs))
        for side, names in needed:
            # A lookup has no outputs but the place that tells it the run's folder.
            if names or not part.lookup:
                side["artifacts"] = {n: a for n, a in side["artifacts"].items() if n in names}
        return part_input

    def add(self, part: StepInterface, output: Mapping[str, Any]) -> None:
        """Add the executor output of a part."""
        self.made["artifacts"] |= output.get("artifacts", {})
        for name, value in output.get("parameterValues", {}).items():
            self.made["parameterValues"][part.shared(name)] = value
