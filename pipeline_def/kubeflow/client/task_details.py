"""Read the state, the pod and the log of each task of a run.

Releases with ML Metadata list every node of the Argo workflow in `run_details`, by the last part of
its name: a task, its driver `X-driver`, its `executor` and, since 2.17, each attempt at one of
them, such as `X(0)`. Later ones list the tasks themselves in `tasks`, with their pods.
"""

import base64
import datetime
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.run import RunView, TaskView
from pipeline_def.service_errors import one_line

_DRIVER = "-driver"
# Argo names a pod after its template: without and with retries of the task.
_TEMPLATES = ("system-container-impl", "retry-system-container-impl")
_TEMPLATE = re.compile(r"-(retry-)?system-(container-impl|container-driver|dag-driver)(?=-\d+$)")
Details = Mapping[str, Any]


def read_state(run: Details) -> str:
    """Return the state of a run; 2.17 reports a stopped one as failed."""
    state = str(run.get("state") or "PENDING")
    return "CANCELED" if state == "FAILED" and _stopped_at(run) else state


def _stopped_at(run: Details) -> float:
    """Return when a run was stopped, in seconds since 1970; 0: it was not."""
    history = run.get("state_history") or []
    times = (_seconds(one.get("update_time")) for one in history if _state(one) == "CANCELING")
    return next(times, 0.0)


def read_view(run: Details, tasks: Iterable[str]) -> RunView:
    """Return the state of a run and of its tasks.

    Args:
        run: Response of the API.
        tasks: Names of the steps. They are returned in the order in which they started.
    """
    details = list(_details(run))
    named = {detail["display_name"]: detail for detail in details}
    names = list(tasks)
    # Drivers of stages and of the run may fail as well.
    drivers = (name.removesuffix(_DRIVER) for name in named if name.endswith(_DRIVER))
    failed = {name for name in drivers if _state(named[f"{name}{_DRIVER}"]) == "FAILED"}
    names += sorted(failed - set(names))
    names.sort(key=lambda name: _times(named.get(name, {}))[0] or float("inf"))
    pods = [detail for detail in details if detail["display_name"].startswith("executor")]
    waiting = {_times(pod)[0] for pod in pods if _state(pod) == "PENDING"}
    views = [_task_view(name, named, waiting, stopped_at=_stopped_at(run)) for name in names]
    if run.get("tasks") and read_state(run) in ("FAILED", "CANCELED"):
        # A task of this form stays RUNNING if its pod is killed.
        views = [replace(v, state="CANCELED") if v.state == "RUNNING" else v for v in views]
    error = (run.get("error") or {}).get("message", "")
    return RunView(read_state(run), tuple(views), error)


def _task_view(
    name: str, named: Mapping[str, Details], waiting: set[float], *, stopped_at: float
) -> TaskView:
    detail, driver = named.get(name, {}), named.get(f"{name}{_DRIVER}", {})
    state = _state(detail)
    if not state or _state(driver) == "FAILED":
        detail, attempt = driver, named.get(f"{name}{_DRIVER}(0)", {})
        state = _state(driver) if _state(driver) == "FAILED" else ""
        state = "PENDING" if "PENDING" in (_state(driver), _state(attempt)) else state
    start, end = _times(detail)
    seconds = end - start if state in ("SUCCEEDED", "FAILED") and 0 < start <= end else None
    # The API has no state for a cache hit, but no pod ever finishes within a second.
    if state == "SUCCEEDED" and seconds is not None and seconds <= 1:
        state, seconds = "CACHED", None
    if state == "FAILED" and 0 < stopped_at <= end:
        state = "CANCELED"
    # A task runs while its pod is pending; its first attempt starts with the task.
    if state == "RUNNING" and any(0 <= pod - start <= 1 for pod in waiting):
        state = "PENDING"
    return TaskView(name, state, seconds, (detail.get("error") or {}).get("message", ""))


def find_pod(run: Details, task: str) -> str | None:
    """Return the Argo node of the last pod of a task, or else of its driver, if either has started.

    Without `tasks` in the response, a node refers to others by ID, a hash of a whole name such as
    `images-g9nxq(0).root(0).train(0).Trainer(0).executor(0)`; releases before 2.17 list no
    attempts. Source: `NodeID` and `initializeNode` of Argo Workflows.
    """
    if run.get("tasks"):
        own = next((one.get("pods") or [] for one in run["tasks"] if one["name"] == task), [])
        own = sorted(own, key=lambda pod: pod.get("type") == "EXECUTOR")
        return _TEMPLATE.sub("", own[-1]["name"]) if own else None
    details = list(_details(run))
    ids = {child.get("pod_name", "") for one in details for child in one.get("child_tasks") or []}
    workflows = {node.rpartition("-")[0] for node in ids} - {""}
    stages = ["", *sorted({f".{detail['display_name']}" for detail in details})]
    for workflow, title, stage, attempt in itertools.product(
        sorted(workflows), (f"{task}{{}}.executor", f"{task}{_DRIVER}"), stages, ("(0)", "")
    ):
        within = f"{stage}{attempt}" if stage else ""
        name = f"{workflow}{attempt}.root{attempt}{within}.{title.format(attempt)}"
        numbered = (node_id(workflow, f"{name}({number})") for number in itertools.count())
        pods = [node_id(workflow, name), *itertools.takewhile(ids.__contains__, numbered)]
        if pods[-1] in ids:
            return pods[-1]
    return None


def node_id(workflow: str, name: str) -> str:
    """Return the ID of a node: the FNV-1a hash of its name, 32 bits."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return f"{workflow}-{value}"


def _details(run: Details) -> Iterator[dict[str, Any]]:
    """Yield the nodes, or the tasks in their form; what the launcher adds has no name."""
    for task in run.get("tasks") or []:
        error = {"message": (task.get("status_metadata") or {}).get("message", "")}
        names = {"display_name": task["name"], "start_time": task.get("create_time")}
        yield {**task, **names, "error": error}
    for detail in (run.get("run_details") or {}).get("task_details") or []:
        if detail.get("display_name") and not run.get("tasks"):
            yield detail


def _state(detail: Details) -> str:
    state = str(detail.get("state") or "")
    return "" if state == "RUNTIME_STATE_UNSPECIFIED" else state


def _times(detail: Details) -> tuple[float, float]:
    return _seconds(detail.get("start_time")), _seconds(detail.get("end_time"))


def _seconds(stamp: Any) -> float:
    """Return seconds since 1970, and 0 for the year 1, which the backend writes for no time."""
    try:
        return max(0.0, datetime.datetime.fromisoformat(str(stamp)).timestamp())
    except (ValueError, OverflowError):
        return 0.0


def read_log(api: Api, run: Details, node: str) -> str:
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
