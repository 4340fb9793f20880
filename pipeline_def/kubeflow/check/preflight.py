"""What a specification needs around it: images, secrets and volumes, and a folder of images.

Looked for from this machine before anything is uploaded. What it cannot see is said, too: a cluster
may see more, or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from components.contract.errors import ServiceError, UserError
from components.storage.artifact_files import on_disk
from components.storage.folder import list_folders
from pipeline_def.kubeflow.check.finding import Finding
from pipeline_def.kubeflow.check.image_registry import find_image
from pipeline_def.kubeflow.check.kubectl import Kubectl
from pipeline_def.kubeflow.specification import Specification

# Of the run; the one that names a folder of images.
_DATA = "data"


def look_around(specification: Specification, kubectl: Kubectl) -> Iterator[Finding]:
    """Yield what is there, what is not, and what cannot be seen from here.

    Args:
        specification: checked already.
        kubectl: of the cluster and the namespace that it is to run in.
    """
    images = {
        executor["container"]["image"]
        for executor in specification.executors.values()
        if "container" in executor
    }
    for image in sorted(images):
        yield find_image(image)
    yield from _look_for_objects(specification, kubectl)
    if data := specification.run_parameters.get(_DATA, {}).get("defaultValue"):
        yield _look_for_data(str(data))


def _look_for_objects(specification: Specification, kubectl: Kubectl) -> Iterator[Finding]:
    """Yield findings on the secrets and volume claims that steps are given."""
    secrets: dict[str, set[str]] = {}
    claims: set[str] = set()
    for settings in _settings(specification):
        for secret in settings.get("secretAsEnv", []):
            keys = {one["secretKey"] for one in secret.get("keyToEnv", [])}
            secrets.setdefault(secret["secretName"], set()).update(keys)
        for secret in settings.get("imagePullSecret", []):
            secrets.setdefault(secret["secretName"], set())
        claims.update(one["constant"] for one in settings.get("pvcMount", []) if "constant" in one)
    wanted = [("secret", name, secrets[name]) for name in sorted(secrets)]
    wanted += [("persistentvolumeclaim", name, set()) for name in sorted(claims)]
    for kind, name, keys in wanted:
        yield _look_for_object(kubectl, kind, name, keys)


def _settings(specification: Specification) -> list[dict[str, Any]]:
    kubernetes = specification.platform.get("platforms", {}).get("kubernetes", {})
    return list(kubernetes.get("deploymentSpec", {}).get("executors", {}).values())


def _look_for_object(kubectl: Kubectl, kind: str, name: str, keys: set[str]) -> Finding:
    where = f"{kind} {name} in the namespace {kubectl.namespace}"
    try:
        found = kubectl.get(kind, name)
    except ServiceError as error:
        return Finding("unknown", f"{where}: {error}")
    if found is None:
        return Finding("wrong", f"There is no {where}: create it or correct its name.")
    if missing := sorted(keys - (found.get("data") or {}).keys()):
        return Finding("wrong", f"The {where} has no {', '.join(missing)}.")
    return Finding("ok", where)


def _look_for_data(data: str) -> Finding:
    if on_disk(data):
        return Finding("unknown", f"data {data}: a folder on a volume, which is not seen from here")
    # A pattern is looked for as far as it names one folder.
    folder = data.partition("{")[0].rpartition("/")[0] if "{" in data else data
    try:
        inside = list_folders(folder)
    except UserError as error:
        # This machine may lack the credentials, or the way, that the cluster has.
        return Finding("unknown", f"data {data}: {error}")
    if not inside:
        return Finding("wrong", f"data {data}: there are no folders in {folder}.")
    return Finding("ok", f"data {data}: {len(inside)} folders in {folder}")
