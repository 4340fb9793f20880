"""Look for the secrets, volumes and images of a specification before it is uploaded.

What this machine cannot see is reported as unknown: the cluster may have other access.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from components.contract.errors import ServiceError, UserError
from components.storage.artifact_files import on_disk
from components.storage.folder import list_folders
from pipeline_def.kubeflow.service_errors import one_line
from pipeline_def.kubeflow.specification import Specification

_REQUEST_TIMEOUT = 15
"""Seconds that kubectl waits for the API server."""
_PROCESS_TIMEOUT = 30
"""Seconds after which kubectl is killed."""


class Finding(NamedTuple):
    """One thing that a pipeline needs, and whether it exists."""

    state: Literal["found", "MISSING", "unknown"]
    text: str


def preflight(specification: Specification, namespace: str) -> Iterator[Finding]:
    """Yield a finding for each image, secret, volume claim and folder of images.

    Args:
        specification: Already checked.
        namespace: Namespace of the run, in the cluster of kubectl's current context.
    """
    for image in sorted({container["image"] for _, _, container in specification.steps()}):
        yield Finding("unknown", f"image {image}: `docker manifest inspect {image}` finds it")
    for kind, name, keys in _needed_objects(specification):
        yield _find_object(kind, name, keys, namespace)
    if data := specification.run_parameters.get("data", {}).get("defaultValue"):
        yield _find_data(str(data))


def _needed_objects(specification: Specification) -> Iterator[tuple[str, str, set[str]]]:
    """Yield kind, name and required keys of the objects that steps refer to."""
    secrets: dict[str, set[str]] = {}
    claims: set[str] = set()
    for settings in specification.kubernetes_settings().values():
        for secret in (*settings.get("secretAsEnv", []), *settings.get("imagePullSecret", [])):
            keys = {one["secretKey"] for one in secret.get("keyToEnv", [])}
            secrets.setdefault(secret["secretName"], set()).update(keys)
        claims.update(one["constant"] for one in settings.get("pvcMount", []) if "constant" in one)
    yield from (("secret", name, keys) for name, keys in sorted(secrets.items()))
    yield from (("persistentvolumeclaim", name, set()) for name in sorted(claims))


def _find_object(kind: str, name: str, keys: set[str], namespace: str) -> Finding:
    where = f"{kind} {name} in the namespace {namespace}"
    try:
        found = _get(kind, name, namespace)
    except ServiceError as error:
        return Finding("unknown", f"{where}: {error}")
    if found is None:
        return Finding("MISSING", f"{where}: create it or correct its name")
    if missing := sorted(keys - (found.get("data") or {}).keys()):
        return Finding("MISSING", f"{where}: it has no {', '.join(missing)}")
    return Finding("found", where)


def _get(kind: str, name: str, namespace: str) -> dict[str, Any] | None:
    """Return a Kubernetes object, or None if it does not exist.

    kubectl knows how to sign in: contexts, plugins and certificates.

    Raises:
        ServiceError: kubectl is missing, cannot reach the cluster, or may not read the object.
    """
    command = ["kubectl", "--namespace", namespace, f"--request-timeout={_REQUEST_TIMEOUT}s"]
    command += ["get", kind, name, "--output=json"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROCESS_TIMEOUT, check=False
        )
    except FileNotFoundError:
        raise ServiceError("kubectl is not installed") from None
    except subprocess.TimeoutExpired:
        raise ServiceError(f"kubectl did not answer within {_PROCESS_TIMEOUT} s") from None
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    if "(NotFound)" in done.stderr:
        return None
    # Messages of its libraries come before the reason.
    *_, reason = done.stderr.splitlines() or [f"status {done.returncode}"]
    raise ServiceError(f"kubectl: {one_line(reason)}")


def _find_data(data: str) -> Finding:
    if on_disk(data):
        return Finding("unknown", f"data {data}: a folder on a volume of the cluster")
    # A pattern is followed up to the last folder before its first field.
    folder = data.partition("{")[0].rpartition("/")[0] if "{" in data else data
    try:
        labels = list_folders(folder)
    except UserError as error:
        return Finding("unknown", f"data {data}: {error}")
    if not labels:
        return Finding("MISSING", f"data {data}: there are no folders in {folder}")
    return Finding("found", f"data {data}: {len(labels)} folders in {folder}")
