"""Read the log of a task from wherever the cluster keeps it, and the reason of a failure in it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.service_errors import one_line

# Argo names a pod after its template: without and with retries of the task.
_TEMPLATES = ("system-container-impl", "retry-system-container-impl")


def read_log(api: Api, run: Mapping[str, Any], node: str) -> str:
    """Return the log of a node of a run.

    Argo archives it as an artifact once the pod has ended; before that, the pod has it.

    Raises:
        ServiceError: It cannot be read, as before the pod has started.
    """
    run_id = run["run_id"]
    archive = f"/apis/v2beta1/runs/{run_id}/nodes/{node}/artifacts/main-logs:read"
    pods = [f"-{template}-".join(node.rsplit("-", 1)) for template in _TEMPLATES]
    query = {
        "runid": run_id,
        "podnamespace": api.connection.namespace or "kubeflow",
        "createdat": str(run.get("created_at", ""))[:10],
    }
    # The client of some releases has no method for the archive. The second place is the server of
    # the interface, which is in front of the API.
    places: list[tuple[str, dict[str, str]]] = [(archive, {})]
    places += [("/k8s/pod/logs", {**query, "podname": pod}) for pod in pods]
    reasons = []
    for path, query in places:
        try:
            text = api.text(path, f"read the log of {node}", query)
        except ServiceError as error:
            reasons.append(one_line(str(error)))
            continue
        if log := _decode(text) if path == archive else text:
            return log
    # The archive's reason: the other places may just not exist at this address.
    why = f": {reasons[0]}" if reasons else ""
    raise ServiceError(
        f"There is no log of {node}: its pod has not started or was deleted before Argo archived "
        f"the log, or the log is empty{why}."
    )


def find_reason(log: str, task: str) -> str:
    """Return the sentence with which a step or KFP's driver failed; empty if there is none.

    The launcher and argoexec write lines of their own after it.
    """
    own = rf"^{re.escape(task)}: (?:error|failed): (.+)$"
    found = re.findall(rf"{own}|^.*\bKFP driver: (.+)$", log, flags=re.MULTILINE)
    return next((a or b for a, b in reversed(found)), "").strip()


def _decode(text: str) -> str:
    try:
        return base64.b64decode(json.loads(text)["data"]).decode("utf-8", "replace")
    except (ValueError, LookupError, TypeError):
        return ""
