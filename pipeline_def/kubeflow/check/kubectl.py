"""Asks a cluster through `kubectl`, which knows how to sign in: contexts, plugins, certificates."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.service_errors import one_line

# Of one request, seconds; the process is given a little more.
_TIMEOUT = 15


@dataclass(frozen=True)
class Kubectl:
    """The cluster of the current context, and a namespace."""

    namespace: str

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object; None if there is none of this name.

        Raises:
            ServiceError: there is no kubectl, no cluster, or no right to look.
        """
        command = ["kubectl", "--namespace", self.namespace, f"--request-timeout={_TIMEOUT}s"]
        command += ["get", kind, name, "--output=json"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=2 * _TIMEOUT, check=False
            )
        except FileNotFoundError:
            raise ServiceError("there is no kubectl on this machine") from None
        except subprocess.TimeoutExpired:
            raise ServiceError(f"kubectl did not answer within {2 * _TIMEOUT} s") from None
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout)
            return found
        if "(NotFound)" in done.stderr:
            return None
        raise ServiceError(f"kubectl: {one_line(done.stderr)}")
