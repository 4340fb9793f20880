"""Translates between KFP's launcher and TFX's executors: the input of a step, and its output.

Plain dictionaries of JSON; nothing here imports TFX. The launcher's side is `ExecutorInput` of
`pipeline_spec.proto` and KFP's backend/src/v2 (driver and component), TFX's is
kubeflow_v2_entrypoint_utils.
"""

import contextlib
import copy
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.contract.artifact_files import on_disk
from components.contract.errors import ConfigurationError, UserError
from components.trainer.config.training import can_search
from pipeline_def.kubeflow.step_interface import (
    RESOLVED_PARAMETER,
    RUN_PARAMETERS,
    STORAGE,
    STORAGE_PARAMETER,
    StepInterface,
    is_integer,
    set_value,
)
from pipeline_def.steps import TUNER

# The launcher copies artifacts from and to these folders.
_MOUNTS = {"gs://": "/gcs/", "minio://": "/minio/", "s3://": "/s3/"}

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def read_executor_input(text: str) -> dict[str, Any]:
    """Parse `--executor_input`; empty parts, which the launcher leaves out, are filled in."""
    try:
        given: dict[str, Any] = json.loads(text)
        for side, parts in (
            ("inputs", ("parameterValues", "artifacts")),
            ("outputs", ("artifacts",)),
        ):
            for part in parts:
                given.setdefault(side, {}).setdefault(part, {})
        for artifact in artifacts_of(given):
            artifact.setdefault("metadata", {})
            artifact.setdefault("type", {})
        given["outputs"]["outputFile"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            "--executor_input is not what KFP's launcher gives in place of {{$}} "
            f"({type(error).__name__}: {error})."
        ) from error
    return given


def artifacts_of(executor_input: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all artifacts, inputs and outputs."""
    for side in ("inputs", "outputs"):
        for listed in executor_input.get(side, {}).get("artifacts", {}).values():
            yield from listed["artifacts"]


def local_path(uri: str) -> str:
    """Return where the launcher keeps its copy of `uri`."""
    for scheme, mount in _MOUNTS.items():
        if uri.startswith(scheme):
            return mount + uri.removeprefix(scheme)
    if on_disk(uri):
        return uri
    raise ConfigurationError(
        f"The artifact {uri} is not on gs://, s3:// or minio://: steps cannot read it."
    )


def remote_uri(path: str) -> str:
    """Return the URI whose local copy `path` is; the inverse of `local_path`."""
    for scheme, mount in _MOUNTS.items():
        if path.startswith(mount):
            return scheme + path.removeprefix(mount)
    return path


def storage_of(executor_input: Mapping[str, Any], pipeline: str) -> str | None:
    """Return where pushed models go: what the run says, or the folder that all its runs share.

    Vertex AI writes to `<root>/<project number>/<pipeline>-<time>/…`.
    """
    values = executor_input.get("inputs", {}).get("parameterValues", {})
    if given := values.get(STORAGE_PARAMETER):
        return str(given).rstrip("/")
    if run := run_folder(executor_input, pipeline):
        return run.rpartition("/")[0]
    root = _folder_of_outputs(rf".+?(?=/\d+/{re.escape(pipeline)}-\d+/)", executor_input)
    return f"{root}/{pipeline}" if root else None


def run_folder(executor_input: Mapping[str, Any], pipeline: str) -> str | None:
    """Return the folder of the run's artifacts on open-source Kubeflow; None if unknown.

    It writes to `<root>/<pipeline>/<run, a UUID>/…`. Inputs may come from other runs.
    """
    return _folder_of_outputs(rf".+?/{re.escape(pipeline)}/{_UUID}(?=/)", executor_input)


def _folder_of_outputs(pattern: str, executor_input: Mapping[str, Any]) -> str | None:
    outputs = artifacts_of({"outputs": executor_input["outputs"]})
    matches = (re.match(pattern, artifact["uri"]) for artifact in outputs)
    return next((match[0] for match in matches if match), None)


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
            compiled = properties.get(name)
            text = set_value(compiled, tuple(keys), value)
            option = ".".join(keys)
            changes = interface.step == TUNER.id and parameter.read(compiled) != value
            if changes and can_search(option):
                # A search leaves alone what the user has set.
                fixed = [*json.loads(text)["training"]["fixed"], option]
                text = set_value(text, ("training", "fixed"), fixed)
            properties[name] = text
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
