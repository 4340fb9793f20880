"""Write the record of a run on a cluster, on the machine that starts and possibly follows it."""

from __future__ import annotations

import os
from typing import Any, Literal

from components.contract.errors import StorageError
from pipeline_def.kubeflow.client.run import RUN_ENDS, RunRequest, RunView, StartedRun
from pipeline_def.kubeflow.specification import Specification
from pipeline_def.layout import Layout
from pipeline_def.runs.record import Step
from pipeline_def.runs.recorder import Recorder

_StepState = Literal["running", "done", "cached", "failed", "stopped"]

# Tasks in any other state have not started.
_STATES: dict[str, _StepState] = {
    "RUNNING": "running",
    "CANCELING": "running",
    "SUCCEEDED": "done",
    "CACHED": "cached",
    "FAILED": "failed",
    "CANCELED": "stopped",
}
_ENDS: dict[str, Literal["failed", "stopped"]] = {"FAILED": "failed", "CANCELED": "stopped"}


def check_output(output: str) -> None:
    """Make sure that records can be written, before a run is started.

    Raises:
        StorageError: The folder cannot be written to.
    """
    try:
        os.makedirs(Layout(output).runs, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot write to {output} ({error.strerror}): choose another --output."
        ) from error


class RunWriter:
    """Writes the record of one run."""

    def __init__(self, output: str, request: RunRequest, started: StartedRun) -> None:
        """Record that the run has started."""
        specification = Specification(request.documents[0])
        defined = specification.run_parameters.items()
        defaults = {name: parameter.get("defaultValue") for name, parameter in defined}
        self._recorder = Recorder(
            output,
            runner="kubeflow",
            pipeline=specification.spec["pipelineInfo"]["name"],
            configuration={**defaults, **request.parameters},
            code=_code_digests(specification),
            versions=_versions(specification),
        )
        self._recorder.change(url=started.url)

    def see(self, view: RunView) -> None:
        """Record the progress of the run."""
        steps = self._recorder.record.steps | {
            task.name: Step(_STATES[task.state], seconds=task.seconds)
            for task in view.tasks
            if task.state in _STATES
        }
        if steps != self._recorder.record.steps:
            self._recorder.change(steps=steps)
        if view.state in RUN_ENDS:
            errors = (task.error for task in view.tasks if task.error)
            self._recorder.end(_ENDS.get(view.state, "done"), next(errors, view.error))


def _code_digests(specification: Specification) -> dict[str, str]:
    """Return the digests that the compiler gave to the steps."""
    digests = {}
    for name, task, _ in specification.steps():
        source = task.get("inputs", {}).get("parameters", {}).get("code_digest", {})
        if "runtimeValue" in source:
            digests[name] = str(source["runtimeValue"]["constant"])
    return digests


def _versions(specification: Specification) -> dict[str, Any]:
    """Return the images of the steps, usually one, and the version of the SDK."""
    images = {container["image"] for _, _, container in specification.steps()}
    sdk = specification.spec.get("sdkVersion", "")
    return {"image": ", ".join(sorted(images)), "sdk": sdk}
