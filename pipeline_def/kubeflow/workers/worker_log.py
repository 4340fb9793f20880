"""Logs of workers: the chief's as it grows, and what the first one that failed said last."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from components.contract.errors import WorkerError
from pipeline_def.kubeflow.step_interface import FAILED
from pipeline_def.kubeflow.workers.cluster import Cluster
from pipeline_def.kubeflow.workers.tf_job import Manifest

_LAST_LINES = 50


@dataclass
class LogReader:
    """Writes what is new in the log of a pod since the last time."""

    cluster: Cluster
    pod: str
    write: Callable[[str], None]
    seen: str = ""
    """Time of the newest line that was written, RFC 3339."""
    repeated: int = 0
    """Lines of that time."""

    def write_new(self) -> None:
        """Write the lines that have come."""
        lines = _lines(self.cluster.log(self.pod, since=self.seen))
        stamped = [line.partition(" ") for line in lines]
        # The API gives lines of the very second again, in which many may have been written.
        old = sum(_is_before(time, self.seen) for time, _, _ in stamped) if self.seen else 0
        for time, _, text in stamped[old + self.repeated if self.seen else 0 :]:
            self.repeated = self.repeated + 1 if time == self.seen else 1
            self.seen = time
            self.write(text)


def _lines(log: str) -> list[str]:
    # Not splitlines(): a progress bar has carriage returns within a line.
    return [line for line in log.split("\n") if line]


def _is_before(time: str, other: str) -> bool:
    # Fractions of a second may have any number of digits.
    return time.rstrip("Z") < other.rstrip("Z")


@dataclass(frozen=True)
class Failure:
    """Why a worker ended."""

    pod: str
    status: int
    reason: str
    """Kubernetes' word for it, such as OOMKilled."""
    sentence: str
    """What the worker said of it; "" if it had no time to."""
    last_lines: str

    def __str__(self) -> str:
        if self.sentence:
            return f"{self.pod}: {self.sentence}"
        detail = f" ({self.reason})" if self.reason else ""
        return f"{self.pod} ended with status {self.status}{detail}."


def first_failure(cluster: Cluster, job: str, step: str) -> Failure | None:
    """Return why the worker failed that was the first to fail; the others only lost it."""
    failed = [pod for pod in cluster.pods(job) if pod["status"].get("phase") == "Failed"]
    if not failed:
        return None
    _, pod, status, reason = min(map(_ended, failed), key=_rank)
    lines = [line.partition(" ")[2] for line in _lines(cluster.log(pod, lines=_LAST_LINES))]
    said = re.compile(rf"{re.escape(step)}: (?:error|failed): (.*)")
    sentences = [found[1] for line in lines if (found := said.match(line))]
    return Failure(pod, status, reason, sentences[-1] if sentences else "", "\n".join(lines))


def _rank(ended: tuple[str, str, int, str]) -> tuple[bool, str, bool]:
    """Put last who says that another worker is gone, and within a second who may mean it."""
    when, _, status, _ = ended
    return status == WorkerError.exit_status, when, status == FAILED


def _ended(pod: Manifest) -> tuple[str, str, int, str]:
    """Return when a pod ended, its name, its exit status and the reason."""
    name, status = pod["metadata"]["name"], pod["status"]
    for container in status.get("containerStatuses", []):
        if ended := container.get("state", {}).get("terminated"):
            facts = ended.get("finishedAt") or "", ended.get("exitCode", 1), ended.get("reason", "")
            when, code, reason = facts
            # "Error" is what Kubernetes calls every status but 0.
            return when, name, int(code), "" if reason == "Error" else reason
    # Without a container's end, the pod was evicted, or its node is lost.
    return "", name, 1, str(status.get("reason") or status.get("message") or "")
