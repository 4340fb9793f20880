"""The message with which KFP's launcher starts a step: `ExecutorInput` of `pipeline_spec.proto`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from components.contract.errors import ConfigurationError
from components.storage.artifact_files import on_disk
from pipeline_def.kubeflow.run_parameters import STORAGE_PARAMETER

# The launcher copies artifacts from and to these folders.
_MOUNTS = {"gs://": "/gcs/", "minio://": "/minio/", "s3://": "/s3/"}

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow", alias_generator=to_camel)


class _Artifact(_Message):
    uri: str
    metadata: dict[str, Any] = {}
    type: dict[str, Any] = {}


class _ArtifactList(_Message):
    artifacts: list[_Artifact]


class _Inputs(_Message):
    parameter_values: dict[str, Any] = {}
    artifacts: dict[str, _ArtifactList] = {}


class _Outputs(_Message):
    output_file: str
    artifacts: dict[str, _ArtifactList] = {}


class _ExecutorInput(_Message):
    inputs: _Inputs = _Inputs()
    outputs: _Outputs


def read_executor_input(text: str) -> dict[str, Any]:
    """Parse `--executor_input`; empty parts, which the launcher leaves out, are filled in.

    Raises:
        ConfigurationError: it has another form.
    """
    try:
        return _ExecutorInput.model_validate_json(text).model_dump(by_alias=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            "--executor_input is not what KFP's launcher gives in place of {{$}}: "
            f"{place}{': ' if place else ''}{first['msg']}."
        ) from error


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
    """Return where pushed models go: what the run says, or the pipeline's own folder."""
    values = executor_input.get("inputs", {}).get("parameterValues", {})
    if given := values.get(STORAGE_PARAMETER):
        return str(given).rstrip("/")
    folders = (pipeline_folder(one["uri"], pipeline) for one in artifacts_of(executor_input))
    return next((folder for folder in folders if folder), None)


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
