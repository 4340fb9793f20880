"""Compiles the pipeline, runs it with `kfp_runner.py`, and checks the results."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from e2e.commands import Commands, Failure
from pipeline_def import steps
from pipeline_def.runs.record import RunRecord, read_records

LOOKUPS = frozenset({"ImageExampleGen-lookup", "ExampleValidator-lookup", "BaselineFinder-lookup"})
# Nothing here sets predict.folder.
_ROWS = [row for row in steps.STEPS.values() if row is not steps.PREDICTOR]
STEPS = LOOKUPS | {row.id for row in _ROWS}
STAGES = list(dict.fromkeys(row.stage for row in _ROWS))


@dataclass(frozen=True)
class Runner:
    """`kfp_runner.py` with a folder for what it writes."""

    commands: Commands
    output: Path
    endpoint: str
    pipeline: str
    """Name of the pipeline, under which the cluster keeps its cache and its pushed models."""

    @property
    def spec(self) -> Path:
        """The compiled specification."""
        return self.output / "pipeline.yaml"

    def compile(self, image: str, data: str) -> None:
        """Compile for small images and few epochs."""
        small = ("--transform.size", "8", "--model.name", "cnn", "--training.epochs", "5")
        where = ["--name", self.pipeline, "--image", image, "--data", data]
        where += ["--output", str(self.spec)]
        self.commands.read(sys.executable, "kfp_runner.py", "compile", *where, *small)

    def run(self, name: str, **parameters: object) -> RunRecord:
        """Start a run, follow it, and return its record, whether it succeeded or not."""
        given = [word for p, v in parameters.items() for word in ("--parameter", f"{p}={v}")]
        own = ("--spec", str(self.spec), "--endpoint", self.endpoint, "--run-name", name)
        records = self.output / name
        words = ("run", *own, *given, "--output", str(records), "--wait")
        before = len(read_records(str(records)))
        _, said = self.commands.follow(sys.executable, "kfp_runner.py", *words)
        found = read_records(str(records))
        if len(found) == before:
            raise Failure(f"{name} did not start: {said.strip()[-500:]}")
        return found[-1]


def check_all_ran(record: RunRecord) -> None:
    """Check that every step ran and succeeded."""
    _check(record, dict.fromkeys(STEPS, "done"))


def check_all_cached(record: RunRecord) -> None:
    """Check that every step but the lookups came from the cache."""
    _check(record, {step: "done" if step in LOOKUPS else "cached" for step in STEPS})


def check_ran(record: RunRecord, *steps: str) -> None:
    """Check that these steps ran."""
    _check(record, dict.fromkeys(steps, "done"))


def check_failed(record: RunRecord, step: str, text: str) -> None:
    """Check that the run failed in `step` with `text` in its error."""
    if record.state != "failed":
        raise Failure(f"The run should have failed in {step}; it is {record.state}.")
    _check(record, {step: "failed"})
    if text not in (record.error or ""):
        raise Failure(f"The error of the run is {record.error!r}; it should say {text!r}.")


def _check(record: RunRecord, wanted: dict[str, str]) -> None:
    found = {name: step.state for name, step in record.steps.items()}
    wrong = [
        f"{n} is {found.get(n)}, not {w}" for n, w in sorted(wanted.items()) if found.get(n) != w
    ]
    if wrong:
        raise Failure(f"{'; '.join(wrong)}. {record.error or ''}".strip())
