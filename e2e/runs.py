"""Compiles the pipeline, runs it with `kfp_runner.py`, and checks the results."""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e import cluster
from e2e.cluster import Failure
from pipeline_def import steps
from pipeline_def.kubeflow.specification import LOOKUPS, pod_of

NODES = list(dict.fromkeys(pod_of(row.id) for row in steps.STEPS.values() if not row.needs))
STEPS = {LOOKUPS, *NODES}
ALL_RAN = dict.fromkeys(STEPS, "SUCCEEDED")
ALL_CACHED = {**dict.fromkeys(NODES, "CACHED"), LOOKUPS: "SUCCEEDED"}

_STATE = re.compile(r"^([\w-]+): ([A-Z]+)(?: after \d+ s)?$", re.MULTILINE)


@dataclass(frozen=True)
class RunOutput:
    """What `kfp_runner.py run --wait` printed about a run."""

    run_id: str
    url: str
    """Its page."""
    states: dict[str, str]
    """Task → its last state."""
    end: str
    """The last line."""


@dataclass(frozen=True)
class Runner:
    """`kfp_runner.py` with a folder for what it writes."""

    output: Path
    endpoint: str
    pipeline: str
    """Name of the pipeline, under which the cluster keeps its cache and its pushed models."""
    user: Sequence[str] = ()
    """Options that say who starts the runs."""
    rows: list[str] = field(default_factory=list)
    """What each run printed, rows of a table."""

    @property
    def spec(self) -> Path:
        """The compiled specification."""
        return self.output / "pipeline.yaml"

    def compile(self, image: str, data: str, *options: str) -> None:
        """Compile for small images and few epochs."""
        small = ["--transform.size", "8", "--model.name", "cnn"]
        small += ["--training.epochs", "5", "--training.folds", "0"]
        where = ["--name", self.pipeline, "--image", image, "--data", data]
        where += ["--output", str(self.spec)]
        cluster.read(sys.executable, "kfp_runner.py", "compile", *where, *small, *options)

    def run(self, name: str, **parameters: object) -> RunOutput:
        """Start a run and follow it to its end, whether it succeeds or not."""
        given = [word for p, v in parameters.items() for word in ("--parameter", f"{p}={v}")]
        own = (str(self.spec), "--endpoint", self.endpoint, "--run-name", name, *self.user)
        words = (sys.executable, "kfp_runner.py", "run", *own, *given, "--wait")
        begin = time.monotonic()
        said = cluster.follow(*words)
        lines = said.splitlines()
        tasks = ", ".join(f"{task} {state}" for task, state in _STATE.findall(said))
        seconds = time.monotonic() - begin
        self.rows.append(f"| {name} | {seconds:.0f} s | {tasks} | {(lines or [''])[-1]} |")
        if not lines or not lines[0].startswith("Run: "):
            raise Failure(f"{name} did not start: {said.strip()[-500:]}")
        run_id = lines[0].removeprefix("Run: ")
        return RunOutput(run_id, lines[1], dict(_STATE.findall(said)), lines[-1])


def check_failed(run: RunOutput, step: str, text: str) -> None:
    """Check that the run failed in `step` with `text` in its error."""
    if not run.end.startswith(f"Run FAILED in the task {step}: ") or text not in run.end:
        raise Failure(f"The run should have failed in {step} with {text!r}, not: {run.end}")


def check_states(run: RunOutput, wanted: Mapping[str, str]) -> None:
    """Check the states of tasks."""
    states = run.states
    wrong = [
        f"{n} is {states.get(n)}, not {w}" for n, w in sorted(wanted.items()) if states.get(n) != w
    ]
    if wrong:
        raise Failure(f"{'; '.join(wrong)}. {run.end}")
