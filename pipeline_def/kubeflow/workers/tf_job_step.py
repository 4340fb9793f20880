"""The Trainer step with several workers on open-source Kubeflow: it starts a TFJob and follows it.

All workers, including the chief, are pods of the job, whose TF_CONFIG the operator writes; the
step's own pod does not train. It hands over the input, forwards the chief's log, hands the output
back to KFP's launcher, and removes the job, however it ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.contract.configuration import to_json
from components.contract.errors import ServiceError
from pipeline_def.kubeflow.executor_input import artifacts_of, storage_of
from pipeline_def.kubeflow.kubernetes_api import Cluster
from pipeline_def.kubeflow.service_errors import Unreachable
from pipeline_def.kubeflow.step_interface import COMMAND, StepInterface
from pipeline_def.kubeflow.workers.artifact_exchange import ArtifactExchange, check_storage
from pipeline_def.kubeflow.workers.tf_job import condition, tf_job, worker_pod
from pipeline_def.kubeflow.workers.worker_log import LogReader, first_failure

# Between two polls of the job: far less than an epoch, and few requests.
_INTERVAL_SECONDS = 5.0
# Consecutive polls that may fail, five minutes: as long as an API server's upgrade takes.
_MOST_FAILED_POLLS = 60
# What a shell reports for a process that SIGTERM has ended.
_CANCELLED = 128 + signal.SIGTERM


def run_workers(
    step: str,
    executor_input: Mapping[str, Any],
    interface: StepInterface,
    *,
    cluster: Cluster | None = None,
    interval: float = _INTERVAL_SECONDS,
) -> dict[str, Any]:
    """Run the step in workers; return the executor output as KFP's launcher takes it.

    Raises:
        ServiceError: a worker failed, or the cluster refused a request.
        ConfigurationError: workers cannot share the artifacts or checkpoints.
        SystemExit: SIGTERM came; the job is removed.
    """
    assert interface.workers
    group, name = interface.workers, job_name(step, executor_input)
    storage = check_storage(storage_of(executor_input, interface.pipeline), group.settings)
    exchange = ArtifactExchange(executor_input, storage, name)
    job = _Job(cluster or Cluster.of_pod(), step, name, group.count, interval)
    with _cancelled_by_signal() as cancelled:
        try:
            job.remove_earlier()
            # Each worker runs the step's own command, but the executor itself.
            own = to_json(dataclasses.replace(interface, direct=True, workers=None))
            sent = json.dumps(exchange.send(), sort_keys=True)
            command = [*COMMAND, "--step", step, "--interface", own, "--executor_input", sent]
            job.cluster.create_job(tf_job(name, group, command, job.cluster.own_pod()))
            job.follow(cancelled)
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
def _cancelled_by_signal() -> Iterator[threading.Event]:
    """Let SIGTERM, by which Kubernetes ends a pod, unwind the stack instead of ending at once.

    Yields whether it has come: Python drops an exception that a handler raises in a finalizer.
    """
    cancelled = threading.Event()

    def cancel(*_: Any) -> None:
        cancelled.set()
        sys.exit(_CANCELLED)

    before = signal.signal(signal.SIGTERM, cancel)
    try:
        yield cancelled
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class _Job:
    cluster: Cluster
    step: str
    name: str
    workers: int
    interval: float
    shown: str = field(default="?", init=False)

    def follow(self, cancelled: threading.Event) -> None:
        """Wait for the end of the job; print its state and the chief's log."""
        log = LogReader(self.cluster, worker_pod(self.name, 0), _print)
        failed_polls = 0
        while True:
            if cancelled.is_set():
                sys.exit(_CANCELLED)
            try:
                state, message = self._poll()
                log.write_new()
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
            time.sleep(self.interval)

    def _poll(self) -> tuple[str, str]:
        job = self.cluster.job(self.name)
        if job is None:
            raise ServiceError(f"The TFJob {self.name} was removed while its workers trained.")
        state, message = condition(job)
        if state != self.shown:
            self.shown = state
            words = state or "waits for Kubeflow's training-operator"
            _print(f"TFJob {self.name}, {self.workers} workers: {words}")
        return state, message

    def _error(self, message: str) -> ServiceError:
        failure = first_failure(self.cluster, self.name, self.step)
        if failure is None:
            return ServiceError(f"The TFJob {self.name} failed: {message}")
        pod, why, last_lines = failure
        if last_lines and pod != worker_pod(self.name, 0):
            _print(f"Last lines of {pod}:\n{last_lines}")
        return ServiceError(why)

    def remove_earlier(self) -> None:
        """Remove the job of an attempt that was killed, and wait until its pods are gone."""
        if self.cluster.delete_job(self.name):
            while self.cluster.job(self.name) is not None:
                time.sleep(self.interval)

    def remove(self) -> None:
        """Remove the job; if that fails, Kubernetes removes it with this pod, its owner."""
        try:
            self.cluster.delete_job(self.name)
        except ServiceError as error:
            _print(f"{error}")


def _print(text: str) -> None:
    print(text, flush=True)
