"""What Kubernetes gives a step: variables and volumes, of the specification and its platform."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubeflow.launcher.driver import NullParameter, Scope, resolve_parameter
from tests.kubeflow.launcher.values import StepError

_UNSUPPORTED = (
    "secretAsVolume",
    "configMapAsEnv",
    "configMapAsVolume",
    "fieldPathAsEnv",
    "genericEphemeralVolume",
)
"""Settings of which a step would notice something; the others only place its pod."""


@dataclass(frozen=True)
class Settings:
    """What a step gets besides its command."""

    mounts: dict[str, Path | None]
    """Mount path → folder of the host; None for an empty one."""

    variables: dict[str, str]
    """Those of the container, without those of the image."""


def pod_settings(
    container: Mapping[str, Any],
    kubernetes: Mapping[str, Any],
    volumes: Mapping[str, Path],
    secrets: Mapping[str, Mapping[str, str]],
    scope: Scope,
) -> Settings:
    """Find what a step gets; raise StepError where its pod would not start."""
    for key in _UNSUPPORTED:
        if key in kubernetes:
            raise NotImplementedError(key)
    variables: dict[str, str] = {}
    for variable in container.get("env", []):
        variables[variable["name"]] = expanded(variable.get("value", ""), variables)
    for secret in kubernetes.get("secretAsEnv", []):
        variables.update(_secret_variables(secret, secrets, scope))
    mounts: dict[str, Path | None] = {
        empty["mountPath"]: None for empty in kubernetes.get("emptyDirMounts", [])
    }
    for mount in kubernetes.get("pvcMount", []):
        claim = _name(mount, "pvcNameParameter", "constant", scope)
        if claim not in volumes:
            raise StepError(f'persistentvolumeclaim "{claim}" not found')
        mounts[mount["mountPath"]] = volumes[claim] / mount.get("subPath", "")
    return Settings(mounts, variables)


def _secret_variables(
    secret: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]], scope: Scope
) -> Iterator[tuple[str, str]]:
    try:
        name = _name(secret, "secretNameParameter", "secretName", scope)
    except NullParameter:
        return
    for entry in secret.get("keyToEnv", []):
        if entry["secretKey"] in secrets.get(name, {}):
            yield entry["envVar"], secrets[name][entry["secretKey"]]
        elif not secret.get("optional"):
            missing = f"couldn't find key {entry['secretKey']} in Secret {name}"
            raise StepError(missing if name in secrets else f'secret "{name}" not found')


def _name(spec: Mapping[str, Any], parameter: str, constant: str, scope: Scope) -> str:
    if parameter in spec:
        value = resolve_parameter(spec[parameter], scope)
    elif constant in spec:
        value = spec[constant]
    else:
        # Of older platform specifications, which have the parameter's fields at this level.
        value = resolve_parameter(
            {key: spec[key] for key in spec if key.endswith("Parameter")}, scope
        )
    if not isinstance(value, str) or not value:
        raise StepError(f"Expected a non-empty string but got: {value!r}")
    return value


def step_environment(image: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Put together a step's environment; its python is this one."""
    folder = Path(sys.executable).parent
    return {
        "PATH": f"{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        **image,
        **variables,
    }


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) and $$ as Kubernetes does in a container's arguments and variables."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)
