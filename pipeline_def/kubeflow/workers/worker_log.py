"""Logs of workers: the chief's as it grows, and the last words of the worker that failed first."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from components.contract.errors import WorkerError
from pipeline_def.kubeflow.kubernetes_api import Cluster, Manifest
from pipeline_def.kubeflow.step_interface import FAILED

_LAST_LINES = 50


@dataclass
class LogReader:
    """Writes the lines that a pod's log has gained since the last call."""

    cluster: Cluster
    pod: str
    write: Callable[[str], None]
    seen: str = ""
    """Time of the newest line written, RFC 3339."""

    def write_new(self) -> None:
        """Write the new lines."""
        for line in self.cluster.log(self.pod, since=self.seen):
            time, _, text = line.partition(" ")
            # The API repeats the lines of the whole second. Fractions vary in length: 3Z < 3.25Z.
            if time.rstrip("Z") > self.seen.rstrip("Z"):
                self.seen = time
                self.write(text)


def first_failure(cluster: Cluster, job: str, step: str) -> tuple[str, str, str] | None:
    """Find the worker that failed first; the others only lost their connection to it.

    Returns:
        Its pod, a sentence on why it ended, and the last lines of its log; None if no pod failed.
    """
    failed = [pod for pod in cluster.job_pods(job) if pod["status"].get("phase") == "Failed"]
    if not failed:
        return None
    _, pod, status, reason = min(map(_termination, failed), key=_rank)
    lines = [line.partition(" ")[2] for line in cluster.log(pod, lines=_LAST_LINES)]
    message = re.compile(rf"{re.escape(step)}: (?:error|failed): (.*)")
    sentences = [found[1] for line in lines if (found := message.match(line))]
    # A worker that Kubernetes kills has no time for a sentence.
    detail = f" ({reason})" if reason else ""
    why = f": {sentences[-1]}" if sentences else f" ended with status {status}{detail}."
    return pod, f"{pod}{why}", "\n".join(lines)


def _rank(termination: tuple[str, str, int, str]) -> tuple[bool, str, bool]:
    """Sort by time, but last the workers that report the loss of another one, or may do so."""
    when, _, status, _ = termination
    return status == WorkerError.exit_status, when, status == FAILED


def _termination(pod: Manifest) -> tuple[str, str, int, str]:
    """Return when a pod ended, its name, its exit status and the reason."""
    name, status = pod["metadata"]["name"], pod["status"]
    for container in status.get("containerStatuses", []):
        if ended := container.get("state", {}).get("terminated"):
            reason = ended.get("reason", "")
            # "Error" is what Kubernetes calls every status but 0.
            reason = "" if reason == "Error" else reason
            return ended.get("finishedAt") or "", name, int(ended.get("exitCode", 1)), reason
    # No container has ended: the pod was evicted, or its node is lost.
    return "", name, 1, str(status.get("reason") or status.get("message") or "")
