"""The record of a run on a cluster, kept by the machine that starts and perhaps follows it."""

from __future__ import annotations

import argparse
import os
from typing import Any, Literal

from components.contract.errors import StorageError
from pipeline_def.kubeflow.check.spec_check import read_documents
from pipeline_def.kubeflow.client.run import RunView, StartedRun
from pipeline_def.kubeflow.client.run_follower import RUN_ENDS
from pipeline_def.kubeflow.client.submission import parse_parameters
from pipeline_def.kubeflow.specification import Specification
from pipeline_def.layout import Layout
from pipeline_def.runs.record import Step
from pipeline_def.runs.recorder import Recorder

_State = Literal["running", "done", "cached", "failed", "stopped"]

# States that are not named here are those of a task that has not begun.
_STATES: dict[str, _State] = {
    "RUNNING": "running",
    "CANCELING": "running",
    "SUCCEEDED": "done",
    "CACHED": "cached",
    "FAILED": "failed",
    "CANCELED": "stopped",
}
_ENDS: dict[str, Literal["done", "failed", "stopped"]] = {
    "FAILED": "failed",
    "CANCELED": "stopped",
}


class RunWriter:
    """Writes the record of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Make sure, before anything is started, that the record can be written.

        Args:
            options: those of `kfp_runner.py run`.

        Raises:
            UserError: the folder cannot be written to, or the specification cannot be used.
        """
        self._options = options
        self._recorder: Recorder | None = None
        try:
            os.makedirs(Layout(options.output).runs, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"Cannot write to {options.output} ({error.strerror}): choose another --output."
            ) from error

    def write_start(self, started: StartedRun) -> None:
        """Write that the run has started."""
        spec = read_documents(self._options.spec)[0]
        defined = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        defaults = {name: parameter.get("defaultValue") for name, parameter in defined.items()}
        given = parse_parameters(self._options.parameter, Specification(spec))
        self._recorder = Recorder(
            self._options.output,
            runner="kubeflow",
            pipeline=spec["pipelineInfo"]["name"],
            configuration=defaults | given,
            code=_find_code(spec),
            versions=_find_images(spec),
        )
        self._recorder.change(url=started.url)

    def see(self, view: RunView) -> None:
        """Write how far the run has come."""
        recorder = self._recorder
        assert recorder is not None
        seen = {
            task.name: Step(_STATES[task.state], seconds=task.seconds)
            for task in view.tasks
            if task.state in _STATES
        }
        steps = {**recorder.record.steps, **seen}
        if steps != recorder.record.steps:
            recorder.change(steps=steps)
        if view.state in RUN_ENDS:
            errors = (task.error for task in view.tasks if task.error)
            recorder.end(_ENDS.get(view.state, "done"), next(errors, view.error))


def _find_code(spec: dict[str, Any]) -> dict[str, str]:
    """Return the digests that the compiler has given to the steps."""
    digests = {}
    steps = [step for layer in Specification(spec).layers() for step in layer.tasks.items()]
    for name, task in steps:
        source = task.get("inputs", {}).get("parameters", {}).get("code_digest", {})
        if "runtimeValue" in source:
            digests[name] = str(source["runtimeValue"]["constant"])
    return digests


def _find_images(spec: dict[str, Any]) -> dict[str, str]:
    """Return the images that the steps run, mostly one."""
    executors = spec["deploymentSpec"]["executors"].values()
    images = {executor["container"]["image"] for executor in executors}
    return {"image": ", ".join(sorted(images)), "sdk": spec.get("sdkVersion", "")}
