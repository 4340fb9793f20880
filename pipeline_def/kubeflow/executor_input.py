"""The message with which KFP's launcher starts a step: `ExecutorInput` of `pipeline_spec.proto`."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.contract.artifact_files import on_disk
from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.step_interface import STORAGE_PARAMETER

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
