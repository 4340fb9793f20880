"""The Trainer step with several workers on open-source Kubeflow: it starts a Job and follows it.

All workers, including the chief, are pods of the Job; the step's own pod does not train. It hands
over the input, forwards the chief's log, hands the output back to KFP's launcher, and removes the
Job, however it ends.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.contract.configuration import to_json
from components.contract.errors import ServiceError, WorkerError
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.kubeflow.kubernetes_api import KubernetesClient, Manifest
from pipeline_def.kubeflow.step.artifact_exchange import ArtifactExchange, are_in_place
from pipeline_def.kubeflow.step.executor_io import artifacts_of, storage_of
from pipeline_def.kubeflow.step.worker_job import condition, index_of, worker_job, worker_service
from pipeline_def.kubeflow.step_interface import (
    COMMAND,
    FAILED,
    StepInterface,
    check_storage,
    find_reason,
)
from pipeline_def.service_errors import Unreachable

# Between two polls of the job: far less than an epoch, and few requests.
_INTERVAL_SECONDS = 5.0
# Consecutive polls that may fail, five minutes: as long as an API server's upgrade takes.
_MOST_FAILED_POLLS = 60
_LAST_LINES = 50
# The API counts back from its own now, and lines may come late; those printed before are skipped.
_OVERLAP_SECONDS = 60
# What a shell reports for a process that SIGTERM has ended.
_CANCELLED = 128 + signal.SIGTERM
_print = functools.partial(print, flush=True)


def run_workers(
    executor_input: Mapping[str, Any],
    interface: StepInterface,
    settings: StepConfig,
    *,
    cluster: KubernetesClient | None = None,
) -> dict[str, Any]:
    """Run the step in workers; return the executor output as KFP's launcher takes it.

    After SIGTERM it removes the job and raises `SystemExit`.
    """
    step, name = interface.step, job_name(interface.step, executor_input)
    storage = storage_of(executor_input, interface.pipeline)
    storage = check_storage(storage, settings, in_place=are_in_place(executor_input))
    with _cancellation() as cancelled:
        api, count = cluster or KubernetesClient.of_pod(), interface.workers
        job = _Job(api, step, name, cancelled)
        exchange = ArtifactExchange(executor_input, storage, name)
        try:
            job.remove_earlier()
            # Each worker runs the step's own command, but the executor itself.
            direct = to_json(dataclasses.replace(interface, direct=True, workers=1))
            sent = json.dumps(exchange.send(), sort_keys=True)
            command = [*COMMAND, "--step", step, "--interface", direct, "--executor_input", sent]
            job.end_if_cancelled()
            owner = job.cluster.own_pod()
            manifest = worker_job(name, count, settings, command, owner)
            job.cluster.create(worker_service(name, owner), manifest)
            job.follow()
            return exchange.receive()
        finally:
            job.remove()
            exchange.discard()


def job_name(step: str, executor_input: Mapping[str, Any]) -> str:
    """Return the name of the job: the same for another attempt at the same task of the same run.

    Output URIs name run and task. With the pod's suffix it must stay a DNS label.
    """
    outputs = artifacts_of({"outputs": executor_input["outputs"]})
    digest = hashlib.sha256(json.dumps([artifact["uri"] for artifact in outputs]).encode())
    return f"{step.lower()}-{digest.hexdigest()[:12]}"


@contextlib.contextmanager
def _cancellation() -> Iterator[threading.Event]:
    """Set an event when SIGTERM comes, by which Kubernetes ends a pod, instead of ending at once.

    An exception in the handler could get lost: Python drops those that pass through a finalizer.
    """
    cancelled = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: cancelled.set())
    try:
        yield cancelled
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class _Job:
    cluster: KubernetesClient
    step: str
    name: str
    cancelled: threading.Event
    shown: str = "?"
    """State printed last."""
    chief: str = ""
    """Pod of the chief, once it is known."""
    logged: str = ""
    """Time of the newest line of the chief's log that was printed, RFC 3339."""
    last: str = ""
    """That line."""
    read_at: float = 0.0
    """When the log was read last, 0 if it was not; of `time.monotonic`."""

    def follow(self) -> None:
        """Wait for the end of the job; print its state and the chief's log."""
        failed_polls = 0
        while True:
            try:
                state, message = self._poll()
                self._print_log()
            except Unreachable:
                failed_polls += 1
                if failed_polls >= _MOST_FAILED_POLLS:
                    raise
            else:
                failed_polls = 0
                if state == "Succeeded":
                    return
                if state == "Failed":
                    raise self._error(message)
            self._wait()

    def _wait(self) -> None:
        # Event.wait could hold the event's lock when the signal's handler sets it.
        time.sleep(_INTERVAL_SECONDS)
        self.end_if_cancelled()

    def end_if_cancelled(self) -> None:
        """Raise `SystemExit` after SIGTERM."""
        if self.cancelled.is_set():
            sys.exit(_CANCELLED)

    def _poll(self) -> tuple[str, str]:
        job = self.cluster.job(self.name)
        if job is None:
            raise ServiceError(f"The Job {self.name} was removed while its workers trained.")
        state, message = condition(job)
        if state != self.shown:
            self.shown = state
            _print(f"Job {self.name}: {state}")
        return state, message

    def _print_log(self) -> None:
        """Print the lines that the chief's log has gained."""
        if not self.chief:
            pods = self.cluster.job_pods(self.name)
            self.chief = next((p["metadata"]["name"] for p in pods if index_of(p) == 0), "")
            if not self.chief:
                return
        began = time.monotonic()
        since = int(began - self.read_at) + _OVERLAP_SECONDS
        wanted = {"since_seconds": since} if self.read_at else {}
        for line in self.cluster.log(self.chief, **wanted):
            when, _, text = line.partition(" ")
            # Fractions vary in length: 3Z < 3.25Z.
            if when.rstrip("Z") > self.logged.rstrip("Z"):
                self.logged, self.last = when, text
                _print(text)
        self.read_at = began if self.logged else 0.0

    def _error(self, message: str) -> ServiceError:
        """Return the error of the worker that failed first, or else the Job's message.

        The other workers only lost their connection to that one.
        """
        pods = self.cluster.job_pods(self.name)
        failed = sorted(filter(_has_failed, pods), key=_rank)
        if not failed:
            last = f" The chief's last line: {self.last}" if self.last else ""
            return ServiceError(f"The Job {self.name} failed: {message}{last}")
        name = failed[0]["metadata"]["name"]
        lines = [line.partition(" ")[2] for line in self.cluster.log(name, tail_lines=_LAST_LINES)]
        if lines and name != self.chief:
            _print("\n".join([f"Last lines of {name}:", *lines]))
        if sentence := find_reason("\n".join(lines), self.step):
            return ServiceError(f"{name}: {sentence}")
        # A worker that Kubernetes kills has no time for a sentence.
        _, status, reason = _termination(failed[0])
        detail = f" ({reason})" if reason else ""
        return ServiceError(f"{name} ended with status {status}{detail}.")

    def remove_earlier(self) -> None:
        """Remove the job of an attempt that was killed, and wait until its pods are gone."""
        if self.cluster.delete(self.name):
            while self.cluster.job(self.name) is not None:
                self._wait()

    def remove(self) -> None:
        """Remove the job; if that fails, Kubernetes removes it with this pod, its owner."""
        try:
            self.cluster.delete(self.name)
        except ServiceError as error:
            _print(f"{error}")


def _has_failed(pod: Manifest) -> bool:
    """Return whether a worker has failed; the phase of its pod follows later."""
    ended, status, _ = _termination(pod)
    return pod.get("status", {}).get("phase") == "Failed" or bool(ended and status)


def _rank(pod: Manifest) -> tuple[bool, str, bool]:
    """Sort by time, but last the workers that report the loss of another one, or may do so."""
    when, status, _ = _termination(pod)
    return status == WorkerError.exit_status, when, status == FAILED


def _termination(pod: Manifest) -> tuple[str, int, str]:
    """Return when the worker in a pod ended, with which status, and why."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses", []):
        if ended := container.get("state", {}).get("terminated"):
            # "Error" is what Kubernetes calls every status but 0.
            reason = ended.get("reason", "").removeprefix("Error")
            return ended.get("finishedAt") or "", int(ended.get("exitCode", 1)), reason
    # No container has ended: the pod was evicted, or its node is lost.
    return "", 1, str(status.get("reason") or status.get("message") or "")
