"""Finds the pipeline's own tasks among the nodes of a run that the open-source API lists."""

from __future__ import annotations

import datetime
import re
from typing import Any

from pipeline_def.kubeflow.client.run import RunView, TaskView

# Nodes of the workflow that are not tasks of the pipeline.
_INTERNAL = re.compile(r"root|executor(\(\d+\))?|iteration-.*")


def run_view(run: dict[str, Any]) -> RunView:
    """Return the run with the pipeline's own tasks.

    The backend lists every node of the Argo workflow: the workflow itself, at first alone, `root`,
    for each task its driver, the task, and below this its `executor`, whose parent is not told.
    """
    details = (run.get("run_details") or {}).get("task_details") or []
    details = details if len(details) > 1 else []
    names = {detail.get("display_name", "") for detail in details}
    children = {child.get("pod_name", "") for d in details for child in d.get("child_tasks") or []}
    workflows = {re.sub(r"-\d+$", "", child) for child in children}
    skipped = [_times(d) for d in details if _is_skipped_executor(d)]
    tasks = []
    for detail in details:
        name = detail.get("display_name", "")
        if not name or _INTERNAL.fullmatch(name) or name in workflows:
            continue
        if name.endswith("-driver") and f"{name}-driver" not in names:
            if detail.get("state") == "FAILED":
                label = name.removesuffix("-driver")
                tasks.append(_task_view(detail, f"{label} (its preparation)", skipped))
            continue
        tasks.append(_task_view(detail, name, skipped))
    error = (run.get("error") or {}).get("message", "")
    return RunView(str(run.get("state") or "PENDING"), tuple(tasks), error)


def _is_skipped_executor(detail: dict[str, Any]) -> bool:
    return detail.get("display_name") == "executor" and detail.get("state") == "SKIPPED"


def _times(detail: dict[str, Any]) -> tuple[float, float]:
    return _seconds(detail.get("start_time")), _seconds(detail.get("end_time"))


def _seconds(stamp: Any) -> float:
    """Return seconds since 1970; 0 for none, and for the year 1 that the backend has for none."""
    try:
        return max(0.0, datetime.datetime.fromisoformat(str(stamp)).timestamp())
    except (ValueError, OverflowError):
        return 0.0


def _task_view(detail: dict[str, Any], name: str, skipped: list[tuple[float, float]]) -> TaskView:
    start, end = _times(detail)
    seconds = end - start if 0 < start <= end else None
    state = detail.get("state") or ""
    if state == "RUNTIME_STATE_UNSPECIFIED":
        state = ""
    # The API has no state for a cache hit: the task then succeeds at once around an executor that
    # is skipped. A pod never gets through in a second.
    if state == "SUCCEEDED" and seconds is not None and seconds <= 1:
        cached = any(start <= at <= end for at, _ in skipped)
        state = "CACHED" if cached else state
    error = (detail.get("error") or {}).get("message", "")
    return TaskView(str(detail.get("task_id") or name), name, state, seconds, error)
