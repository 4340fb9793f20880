"""Translates between Kubeflow's launcher and TFX: what a step is given, and what it gives back.

Plain dictionaries of JSON in and out; nothing here imports TFX. The launcher's side is KFP's
backend/src/v2 (driver and component), TFX's is kubeflow_v2_run_executor.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.contract.errors import UserError

STORAGE = "{storage}"
"""Stands in execution properties for where pushed models, checkpoints and listings go."""

STORAGE_PARAMETER = "storage"
RESOLVED_PARAMETER = "resolved"
"""What a lookup step found out before the cache was asked: execution properties, as JSON."""

# KFP's launcher copies artifacts from and to these folders.
_MOUNTS = {"gs://": "/gcs/", "minio://": "/minio/", "s3://": "/s3/"}

_TFX_VERSION = "tfx_version"
_DRAWN = "components.report.ui_metadata."

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Setting:
    """A value inside an execution property that a parameter of the run decides."""

    parameter: str
    property: str
    path: tuple[str, ...] = ()
    """Keys of the property's JSON, from the outside in; numbers index lists. Empty: all of it."""

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read `parameter=property:key.key`."""
        parameter, _, place = text.partition("=")
        name, _, path = place.partition(":")
        return cls(parameter, name, tuple(path.split(".")) if path else ())

    def __str__(self) -> str:
        path = f":{'.'.join(self.path)}" if self.path else ""
        return f"{self.parameter}={self.property}{path}"


@dataclass(frozen=True)
class Interface:
    """What the specification says of a step, which the launcher does not repeat."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input → dotted path of its artifact class."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    integers: frozenset[str] = frozenset()
    """Execution properties that are integers: to the launcher every number is a double."""
    settings: tuple[Setting, ...] = ()
    direct: bool = False
    """Use remote URIs as they are, instead of the launcher's local copies."""
    pipeline: str = ""


def local_path(uri: str) -> str:
    """Return where the launcher keeps its copy of `uri`.

    Raises:
        UserError: the launcher copies nothing from there.
    """
    for scheme, mount in _MOUNTS.items():
        if uri.startswith(scheme):
            return mount + uri.removeprefix(scheme)
    if "://" not in uri:
        return uri
    raise UserError(f"The artifact {uri} is not on gs://, s3:// or minio://: steps cannot read it.")


def remote_uri(path: str) -> str:
    """Return the URI whose local copy `path` is; the opposite of `local_path`."""
    for scheme, mount in _MOUNTS.items():
        if path.startswith(mount):
            return scheme + path.removeprefix(mount)
    return path


def prepare_input(executor_input: Mapping[str, Any], interface: Interface) -> dict[str, Any]:
    """Return the executor input as TFX's entrypoint takes it.

    Artifact types are restored, URIs are local, parameters of the run are put into the execution
    properties they belong to, and outputs that are the launcher's own are left out.

    Raises:
        UserError: an input is missing, or a URI is on no store that steps can use.
    """
    prepared = copy.deepcopy(dict(executor_input))
    inputs = prepared.setdefault("inputs", {})
    outputs = prepared.setdefault("outputs", {})
    storage = _storage(executor_input, interface)
    inputs["artifacts"] = _typed(inputs.get("artifacts", {}), interface.inputs)
    outputs["artifacts"] = _typed(outputs.get("artifacts", {}), interface.outputs)
    for artifact in _artifacts(prepared):
        if not interface.direct:
            artifact["uri"] = local_path(artifact["uri"])
        # TFX looks artifacts up by a hash of their names.
        artifact["name"] = artifact.get("name") or artifact["uri"]
    inputs["parameterValues"] = _properties(
        inputs.get("parameterValues", {}), interface.settings, storage
    )
    return prepared


def _artifacts(executor_input: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for side in ("inputs", "outputs"):
        for of_key in executor_input.get(side, {}).get("artifacts", {}).values():
            yield from of_key["artifacts"]


def _typed(found: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Give artifacts the types of the specification; KFP's driver blanks those of inputs."""
    typed = {}
    for key, path in types.items():
        artifacts = found.get(key, {}).get("artifacts", [])
        if not artifacts:
            raise UserError(f"The step got no artifact {key!r}: did the step that makes it run?")
        schema = {"instanceSchema": f"title: {path}\n"}
        typed[key] = {"artifacts": [{**artifact, "type": schema} for artifact in artifacts]}
    return typed


def _properties(
    values: Mapping[str, Any], settings: tuple[Setting, ...], storage: str | None
) -> dict[str, Any]:
    """Return the execution properties: those of the specification, changed by the run's own."""
    # The launcher writes 5 where it means 5.0; which ones are integers the specification says.
    values = {key: float(v) if _is_integer(v) else v for key, v in values.items()}
    own = {STORAGE_PARAMETER, RESOLVED_PARAMETER, *(setting.parameter for setting in settings)}
    properties = {key: value for key, value in values.items() if key not in own}
    for setting in settings:
        if setting.parameter in values:
            properties[setting.property] = _set(
                properties.get(setting.property), setting.path, values[setting.parameter]
            )
    resolved = json.loads(values.get(RESOLVED_PARAMETER) or "{}")
    properties |= {key: value for key, value in resolved.items() if value is not None}
    return {key: _with_storage(value, storage) for key, value in properties.items()}


def _set(text: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return the JSON `text` with `value` at `path`; of the kind that was there."""
    if not path:
        return value
    document = json.loads(text)
    place = document
    for key in path[:-1]:
        place = place[int(key) if isinstance(place, list) else key]
    last: Any = int(path[-1]) if isinstance(place, list) else path[-1]
    place[last] = int(value) if _is_integer(place[last]) else value
    return json.dumps(document, sort_keys=True)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_storage(value: Any, storage: str | None) -> Any:
    if not isinstance(value, str) or STORAGE not in value:
        return value
    if storage is None:
        raise UserError(
            "Where pushed models go cannot be told from the pipeline root: set the parameter "
            "storage of the run, or kubeflow.storage when compiling."
        )
    return value.replace(STORAGE, storage)


def _storage(executor_input: Mapping[str, Any], interface: Interface) -> str | None:
    """Return where pushed models go: what the run says, or the pipeline's own folder."""
    given = executor_input.get("inputs", {}).get("parameterValues", {}).get(STORAGE_PARAMETER)
    if given:
        return str(given).rstrip("/")
    for artifact in _artifacts(executor_input):
        if root := pipeline_folder(artifact["uri"], interface.pipeline):
            return root
    return None


def store_endpoint(executor_input: Mapping[str, Any]) -> str | None:
    """Return the URL of the cluster's object store, which KFP notes with every artifact."""
    for artifact in _artifacts(executor_input):
        noted = json.loads(artifact.get("metadata", {}).get("store_session_info") or "{}")
        settings = noted.get("Params") or {}
        if endpoint := settings.get("endpoint"):
            plain = str(settings.get("disableSSL", "")).lower() == "true"
            return endpoint if "://" in endpoint else f"http{'' if plain else 's'}://{endpoint}"
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


def finish_output(executor_output: Mapping[str, Any], interface: Interface) -> dict[str, Any]:
    """Return TFX's executor output as the launcher takes it.

    URIs are remote again, and metadata without a value is left out: the launcher refuses null.
    """
    finished = copy.deepcopy(dict(executor_output))
    for key, of_key in finished.get("artifacts", {}).items():
        # Kubeflow draws all metadata of its own types; TFX adds its version to every artifact.
        hidden = {_TFX_VERSION} if interface.outputs.get(key, "").startswith(_DRAWN) else set()
        for artifact in of_key["artifacts"]:
            if not interface.direct:
                artifact["uri"] = remote_uri(artifact["uri"])
            metadata = artifact.get("metadata", {})
            artifact["metadata"] = {
                name: value
                for name, value in metadata.items()
                if name not in hidden and _is_recordable(value)
            }
    return finished


def _is_recordable(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))
