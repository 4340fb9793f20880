"""The log of a task, from where the cluster keeps it, and the sentence in it that tells most."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.service_errors import one_line

# What Argo calls the log of a pod's main container where it keeps it.
_ARTIFACT = "main-logs"
# Templates whose pods do the work: without and with retries of the task.
_TEMPLATES = ("system-container-impl", "retry-system-container-impl")


def read_log(api: Api, run: Mapping[str, Any], node: str) -> str:
    """Return the log of the node `node` of a run.

    Argo keeps it as an artifact once the pod has ended; until then it is the pod's own.

    Raises:
        ServiceError: neither can be read, as before the pod has started.
    """
    pods = [f"-{template}-".join(node.rsplit("-", 1)) for template in _TEMPLATES]
    sources: list[Callable[[], str]] = [
        functools.partial(_archived, api, run["run_id"], node),
        *(functools.partial(_through_interface, api, run, pod) for pod in pods),
        *(functools.partial(_through_server, api, run["run_id"], pod) for pod in pods),
    ]
    reasons = []
    for source in sources:
        try:
            if text := source():
                return text
        except ServiceError as error:
            reasons.append(one_line(str(error)))
    # What Argo's archive says; those after it may only not exist at this address.
    why = f": {reasons[0]}" if reasons else ""
    raise ServiceError(
        f"The log of {node} is not there: its pod has not started or is gone, and Argo has kept "
        f"none, or it is empty{why}."
    )


def find_sentence(log: str, task: str) -> str:
    """Return what a failed step says of itself; "" if its log has no such line.

    The launcher and argoexec write lines of their own after it.

    Args:
        log: of the pod.
        task: name of the step, or of KFP's driver that failed before it.
    """
    own = rf"^{re.escape(task)}: (?:error|failed): (.+)$"
    found = re.findall(rf"{own}|^.*\bKFP driver: (.+)$", log, flags=re.MULTILINE)
    return next((a or b for a, b in reversed(found)), "").strip()


def _archived(api: Api, run_id: str, node: str) -> str:
    # By its path, because the client of some releases has no method for it.
    path = f"/apis/v2beta1/runs/{run_id}/nodes/{node}/artifacts/{_ARTIFACT}:read"
    text = api.text(path, f"read the log of {node}")
    try:
        return base64.b64decode(json.loads(text)["data"]).decode("utf-8", "replace")
    except (ValueError, LookupError, TypeError):
        return ""


def _through_interface(api: Api, run: Mapping[str, Any], pod: str) -> str:
    """Ask the server of the interface, behind which the API often is."""
    query = {
        "podname": pod,
        "runid": run["run_id"],
        "podnamespace": api.connection.namespace or "kubeflow",
        "createdat": str(run.get("created_at", ""))[:10],
    }
    return api.text("/k8s/pod/logs", f"read the log of {pod}", query)


def _through_server(api: Api, run_id: str, pod: str) -> str:
    path = f"/apis/v1alpha1/runs/{run_id}/nodes/{pod}/log"
    return api.text(path, f"read the log of {pod}")
