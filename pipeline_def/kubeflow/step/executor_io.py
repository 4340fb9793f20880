"""Translates between Kubeflow's launcher and TFX: what a step is given, and what it gives back.

Plain dictionaries of JSON in and out; nothing here imports TFX. The launcher's side is KFP's
backend/src/v2 (driver and component), TFX's is kubeflow_v2_run_executor.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.contract.errors import ConfigurationError, ServiceError
from components.storage.artifact_files import on_disk
from pipeline_def.kubeflow.step.cluster_store import store_url
from pipeline_def.kubeflow.step.launcher_input import read_double, read_integer, read_json
from pipeline_def.kubeflow.step_interface import (
    RECIPE_PARAMETER,
    RESOLVED_PARAMETER,
    STORAGE,
    STORAGE_PARAMETER,
    RecipeChoice,
    Setting,
    StepInterface,
)

# KFP's launcher copies artifacts from and to these folders.
_MOUNTS = {"gs://": "/gcs/", "minio://": "/minio/", "s3://": "/s3/"}

_TFX_VERSION = "tfx_version"

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def local_path(uri: str) -> str:
    """Return where the launcher keeps its copy of `uri`.

    Raises:
        ConfigurationError: the launcher copies nothing from there.
    """
    for scheme, mount in _MOUNTS.items():
        if uri.startswith(scheme):
            return mount + uri.removeprefix(scheme)
    if on_disk(uri):
        return uri
    raise ConfigurationError(
        f"The artifact {uri} is not on gs://, s3:// or minio://: steps cannot read it."
    )


def remote_uri(path: str) -> str:
    """Return the URI whose local copy `path` is; the opposite of `local_path`."""
    for scheme, mount in _MOUNTS.items():
        if path.startswith(mount):
            return scheme + path.removeprefix(mount)
    return path


def prepare_input(executor_input: Mapping[str, Any], interface: StepInterface) -> dict[str, Any]:
    """Return the executor input as TFX's entrypoint takes it.

    Artifact types are restored, URIs are local, parameters of the run are put into the execution
    properties they belong to, and outputs that are the launcher's own are left out.

    Raises:
        ServiceError: an input is missing.
        ConfigurationError: a URI is on no store that steps can use.
    """
    prepared = copy.deepcopy(dict(executor_input))
    inputs = prepared.setdefault("inputs", {})
    outputs = prepared.setdefault("outputs", {})
    values = inputs.get("parameterValues", {})
    storage = storage_of(executor_input, interface.pipeline)
    inputs["artifacts"] = _typed(inputs.get("artifacts", {}), interface.inputs)
    outputs["artifacts"] = _typed(outputs.get("artifacts", {}), interface.outputs)
    for artifact in artifacts_of(prepared):
        if not interface.direct:
            artifact["uri"] = local_path(artifact["uri"])
        # TFX looks artifacts up by a hash of their names.
        artifact["name"] = artifact.get("name") or artifact["uri"]
    inputs["parameterValues"] = _properties(values, interface, storage)
    return prepared


def artifacts_of(executor_input: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all artifacts, inputs and outputs."""
    for side in ("inputs", "outputs"):
        for listed in executor_input.get(side, {}).get("artifacts", {}).values():
            yield from listed["artifacts"]


def _typed(found: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Give artifacts the types of the specification; KFP's driver blanks those of inputs."""
    typed = {}
    for key, path in types.items():
        artifacts = found.get(key, {}).get("artifacts", [])
        if not artifacts:
            raise ServiceError(f"The step got no artifact {key!r}: did the step that makes it run?")
        schema = {"instanceSchema": f"title: {path}\n"}
        typed[key] = {"artifacts": [{**artifact, "type": schema} for artifact in artifacts]}
    return typed


def _properties(
    values: Mapping[str, Any], interface: StepInterface, storage: str | None
) -> dict[str, Any]:
    """Return the execution properties: those of the specification, changed by the run's own."""
    # The launcher writes 5 where it means 5.0; which ones are integers the specification says.
    values = {key: read_double(v, key) if _is_integer(v) else v for key, v in values.items()}
    own = {STORAGE_PARAMETER, RESOLVED_PARAMETER, *(one.parameter for one in interface.settings)}
    own |= {RECIPE_PARAMETER} if interface.recipes else set()
    compiled = {key: value for key, value in values.items() if key not in own}
    properties = dict(compiled)
    if interface.recipes and RECIPE_PARAMETER in values:
        name = interface.recipes.property
        with _placing(RECIPE_PARAMETER, name):
            properties[name] = _with_recipe(
                properties[name], str(values[RECIPE_PARAMETER]), interface.recipes
            )
    for setting in interface.settings:
        name, *keys = setting.place
        value = _read(setting, values.get(setting.parameter))
        with _placing(setting.parameter, name):
            # What is as compiled was not chosen for this run: a recipe of the run may change it.
            if setting.parameter in values and value != _get(compiled.get(name), keys):
                properties[name] = _set(properties.get(name), keys, value)
    resolved = read_json(values.get(RESOLVED_PARAMETER), f"The parameter {RESOLVED_PARAMETER}")
    properties |= {key: value for key, value in resolved.items() if value is not None}
    return {key: _with_storage(value, storage) for key, value in properties.items()}


def _read(setting: Setting, value: Any) -> Any:
    """Return what a value of a parameter stands for."""
    if setting.unset is None or value is None:
        return value
    return None if value == setting.unset else read_integer(value, setting.parameter)


@contextlib.contextmanager
def _placing(parameter: str, name: str) -> Iterator[None]:
    """Say which parameter of the run does not fit the property that it belongs to."""
    try:
        yield
    except ConfigurationError:
        raise
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"The parameter {parameter} of the run has no place in the property {name} "
            f"({type(error).__name__}: {error}): was the pipeline compiled from other code?"
        ) from error


def _with_recipe(text: Any, wanted: str, recipes: RecipeChoice) -> str:
    """Return the JSON `text` with what a recipe sets."""
    if wanted not in recipes.values:
        raise ConfigurationError(
            f"The parameter {RECIPE_PARAMETER} is {wanted!r}: it must be one of "
            f"{', '.join(sorted(recipes.values))}."
        )
    for place, value in {"training.recipe": wanted, **recipes.values[wanted]}.items():
        text = _set(text, place.split("."), value)
    return str(text)


def _get(text: Any, keys: list[str]) -> Any:
    if not keys or text is None:
        return text
    return functools.reduce(lambda part, key: part[key], keys, json.loads(text))


def _set(text: Any, keys: list[str], value: Any) -> Any:
    """Return the JSON `text` with `value` in it; an integer where there was one."""
    if not keys:
        return value
    *parents, last = keys
    document = json.loads(text)
    part = functools.reduce(lambda part, key: part[key], parents, document)
    whole = _is_integer(part[last]) and value is not None
    part[last] = int(value) if whole else value
    return json.dumps(document, sort_keys=True)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_storage(value: Any, storage: str | None) -> Any:
    if not isinstance(value, str) or STORAGE not in value:
        return value
    if storage is None:
        raise ConfigurationError(
            "The pipeline root does not tell where pushed models go: set the parameter storage "
            "of the run, or kubeflow.storage when compiling."
        )
    return value.replace(STORAGE, storage)


def storage_of(executor_input: Mapping[str, Any], pipeline: str) -> str | None:
    """Return where pushed models go: what the run says, or the pipeline's own folder."""
    values = executor_input.get("inputs", {}).get("parameterValues", {})
    if given := values.get(STORAGE_PARAMETER):
        return str(given).rstrip("/")
    folders = (
        pipeline_folder(artifact["uri"], pipeline) for artifact in artifacts_of(executor_input)
    )
    return next((folder for folder in folders if folder), None)


def store_endpoint(executor_input: Mapping[str, Any]) -> str | None:
    """Return the URL of the cluster's object store, which KFP notes with every artifact."""
    for artifact in artifacts_of(executor_input):
        noted = artifact.get("metadata", {}).get("store_session_info")
        if url := store_url(read_json(noted, "The note of the store").get("Params")):
            return url
    return None


def pipeline_folder(uri: str, pipeline: str) -> str | None:
    """Return the folder of `pipeline` that all its runs share, from the URI of any artifact.

    Open-source Kubeflow writes to `<root>/<pipeline>/<run, a UUID>/…`, Vertex AI to
    `<root>/<project number>/<pipeline>-<time>/…`.
    """
    name = re.escape(pipeline)
    if found := re.match(rf"(.+?/{name})/{_UUID}/", uri):
        return found[1]
    if found := re.match(rf"(.+?)/\d+/{name}-\d+/", uri):
        return f"{found[1]}/{pipeline}"
    return None


def finish_output(
    executor_output: Mapping[str, Any], executor_input: Mapping[str, Any], *, direct: bool
) -> dict[str, Any]:
    """Return TFX's executor output as the launcher takes it.

    URIs are remote again, and metadata without a value is left out: the launcher refuses null.

    Args:
        executor_output: what TFX's entrypoint wrote.
        executor_input: as the launcher gave it; it has the types of the outputs.
        direct: whether the step uses remote URIs as they are.
    """
    finished = copy.deepcopy(dict(executor_output))
    given = executor_input["outputs"].get("artifacts", {})
    for key, listed in finished.get("artifacts", {}).items():
        hidden = {_TFX_VERSION} if _is_drawn(given.get(key, {})) else set()
        for artifact in listed["artifacts"]:
            if not direct:
                artifact["uri"] = remote_uri(artifact["uri"])
            artifact["metadata"] = {
                name: value
                for name, value in artifact.get("metadata", {}).items()
                if name not in hidden and _is_recordable(value)
            }
    return finished


def _is_drawn(listed: Mapping[str, Any]) -> bool:
    """Say whether Kubeflow draws all metadata; to that of every artifact TFX adds its version."""
    types = (artifact.get("type", {}) for artifact in listed.get("artifacts", []))
    return any(str(kind.get("schemaTitle")).startswith("system.") for kind in types)


def _is_recordable(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))
