"""Runs the pods of a workflow in this environment, each with its own root directory."""

import json
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubeflow.kfp_backend.argo import Node, State, Template, Values, filled
from tests.kubeflow.kfp_backend.pod import Pod
from tests.kubeflow.workers.kubernetes_server import Objects

# /var/run is a link to /run.
_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
_COMMANDS, _PYTHON = "/kfp-commands", "/kfp-python"
_TIMEOUT = 600.0

Manifest = Mapping[str, Any]


@dataclass
class Kubelet:
    """A node: what its pods can reach, and their logs."""

    commands: Path
    """Folder with KFP's `driver` and `launcher-v2`."""
    account: Path
    """Folder of the service account."""
    services: Values
    """Variables by which pods find services."""
    config_maps: Objects
    secrets: Objects
    python: Path
    """Folder with the `python` of steps."""
    volumes: Mapping[str, Path]
    """Persistent volume claim → folder."""
    logs: dict[str, str] = field(default_factory=dict)
    """Path in the workflow → log of the last pod there."""

    def run(self, path: str, template: Template, scope: Values) -> Node:
        """Run the containers of a template, one after the other, and read their outputs."""
        outputs = template.get("outputs", {}).get("parameters", [])
        files = {one["name"]: one["valueFrom"] for one in outputs}
        places = {f"outputs.parameters.{name}.path": one["path"] for name, one in files.items()}
        pod = _patched(template, scope)
        with tempfile.TemporaryDirectory(prefix="pod-") as folder:
            state = self._run_containers(path, pod, {**scope, **places}, Path(folder))
            given = {name: _read(Path(folder), one) for name, one in files.items()}
        return Node(state, given)

    def _run_containers(self, path: str, pod: Manifest, scope: Values, folder: Path) -> State:
        self.logs[path] = ""
        identity = {"metadata.name": "images-x7k2p-pod", "metadata.uid": str(uuid.uuid4())}
        for container in (*pod.get("initContainers", []), pod["container"]):
            around = self._isolated(container, pod, folder)
            variables = self._variables(container, identity)
            command = [*container["command"], *container.get("args", [])]
            command = [_expand(filled(part, scope), variables) for part in command]
            environment = _environment(self.services | variables)
            log = folder / f"{container['name']}.log"
            status = around.run(command, environment, log, _TIMEOUT)
            self.logs[path] += log.read_text(errors="replace")
            if status:
                return "Failed"
        return "Succeeded"

    def _isolated(self, container: Manifest, pod: Manifest, folder: Path) -> Pod:
        mounts: dict[str, Path | None] = {
            _ACCOUNT: self.account,
            _COMMANDS: self.commands,
            _PYTHON: self.python,
        }
        volumes = {one["name"]: one for one in pod.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            claim = volume.get("persistentVolumeClaim")
            if secret := volume.get("secret"):
                (folder / mount["name"]).mkdir(exist_ok=True)
                for key, value in self.secrets.get(secret["secretName"], {}).items():
                    (folder / mount["name"] / key).write_text(value)
            source = self.volumes[claim["claimName"]] if claim else folder / mount["name"]
            mounts[mount["mountPath"]] = source
        (folder / container["name"]).mkdir()
        return Pod(folder / container["name"], mounts)

    def _variables(self, container: Manifest, identity: Values) -> Values:
        found: Values = {}
        for source in container.get("envFrom", []):
            found |= self.config_maps[source["configMapRef"]["name"]]
        for one in container.get("env", []):
            match one:
                case {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}:
                    found[name] = identity[path]
                case {"name": name, "valueFrom": {"secretKeyRef": key}}:
                    found[name] = self.secrets[key["name"]][key["key"]]
                case {"name": name}:
                    found[name] = _expand(one.get("value", ""), found)
        return found


def _patched(template: Template, scope: Values) -> dict[str, Any]:
    """Merge the patch of the pod into the template, as Kubernetes does for what we set."""
    pod: dict[str, Any] = {"volumes": [], **template}
    pod["container"] = {**template["container"], "name": "main"}
    patch = json.loads(filled(template.get("podSpecPatch", "") or "{}", scope))
    pod["volumes"] = [*pod["volumes"], *patch.get("volumes", [])]
    for container in patch.get("containers", []):
        assert container["name"] == "main"
        # Lists that a patch adds to; everything else it replaces.
        added = {key: pod["container"].get(key, []) for key in ("env", "volumeMounts")}
        lists = {key: [*own, *container.get(key, [])] for key, own in added.items()}
        pod["container"] |= container | lists
    return pod


def _read(folder: Path, source: Manifest) -> str:
    """Read an output, or take its default if the container wrote none."""
    file = folder / "main" / source["path"].lstrip("/")
    return file.read_text() if file.exists() else str(source.get("default", ""))


def _environment(variables: Values) -> Values:
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "PATH": f"{_PYTHON}:{usual}:{_COMMANDS}",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        **variables,
    }


def _expand(text: str, variables: Values) -> str:
    """Replace $(NAME) and $$ as Kubernetes does in a container's arguments and variables."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)
