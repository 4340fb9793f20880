"""The record of a run, `runs/<id>/run.json`, which is written anew at every step.

Both runners write it; `local_runner.py runs`, the lineage of a model and the summary read it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import dacite

from components.contract.configuration import to_dict
from components.contract.errors import StorageError
from pipeline_def.layout import Layout
from pipeline_def.runs.process import Process

FORMAT = 2
"""Of the file; a change that a reader of before would not understand makes it greater."""


@dataclass(frozen=True)
class Output:
    """An artifact."""

    uri: str
    type: str
    properties: dict[str, Any] = field(default_factory=dict)
    """Its short properties: no curves and matrices."""

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a file of the artifact, which must lie on this machine."""
        with open(os.path.join(self.uri, name), encoding="utf-8") as file:
            facts: dict[str, Any] = json.load(file)
        return facts


@dataclass(frozen=True)
class Step:
    """One step of a run."""

    state: Literal["running", "done", "cached", "failed", "stopped"]
    started: str = ""
    """ISO 8601, UTC; "" where a cluster did not tell."""
    seconds: float | None = None
    inputs: dict[str, list[str]] = field(default_factory=dict)
    """Name → URIs."""
    outputs: dict[str, Output] = field(default_factory=dict)
    made_by: str = ""
    """For a cached step, the run that made its outputs; "" where no record of it was found."""


@dataclass(frozen=True)
class Data:
    """The images of a run, as far as ingest has told."""

    folder: str = ""
    fingerprint: str = ""
    """Of the listing of the folder."""
    span: int | None = None
    version: int | None = None
    examples: dict[str, int] = field(default_factory=dict)
    """Split → examples."""


@dataclass(frozen=True)
class Pushed:
    """Where the blessed model of a run is served from."""

    version: str
    destination: str
    """Folder, a path or a URL."""


@dataclass(frozen=True)
class RunRecord:
    """One run of a pipeline; every field after `process` is filled in as the run goes on."""

    id: str
    """When it started, in this machine's time."""
    runner: Literal["local", "kubeflow"]
    pipeline: str
    started: str
    """ISO 8601, UTC."""
    configuration: dict[str, Any]
    """Section → field → value, as a user sets them; on Kubeflow, the parameters of the run."""
    code: dict[str, str]
    """Step → digest of its code; steps of TFX itself have none."""
    versions: dict[str, str]
    """Of Python and the libraries that matter to results; on Kubeflow, the image of the steps."""
    process: Process
    """Runs the pipeline, or follows a run on Kubeflow."""
    state: Literal["running", "done", "failed", "stopped"] = "running"
    ended: str | None = None
    error: str = ""
    """The reason of a failure, in a sentence."""
    url: str = ""
    """Page of a run on Kubeflow."""
    steps: dict[str, Step] = field(default_factory=dict)
    """Those that have begun, in the order in which they did."""
    data: Data = field(default_factory=Data)
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Over all examples of `split`; null where not defined."""
    split: str = ""
    """Judged the model."""
    blessed: bool | None = None
    outcome: str = ""
    """Of the verdict: blessed, undecided or refused."""
    headline: str = ""
    """The verdict in a sentence."""
    reasons: list[str] = field(default_factory=list)
    """Why the model was blessed or not."""
    baseline: dict[str, Any] | None = None
    """The model in use before: `version`, and `accuracy` on the same split."""
    pushed: Pushed | None = None
    earlier_runs: bool = False
    """The output folder had been used before, by a version that kept no records."""
    format: int = FORMAT


def now() -> str:
    """Return the time, ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_record(record: RunRecord, output: str) -> None:
    """Write or replace the file of a record in one step.

    Raises:
        StorageError: the folder cannot be written to.
    """
    path = Layout(output).record(record.id)
    unfinished = f"{path}.unfinished"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(to_dict(record), file, indent=1)
        os.replace(unfinished, path)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror}.") from error


def read_records(output: str, only: str | None = None) -> list[RunRecord]:
    """Return the records in the folder `output`, or the one of a run, the newest last.

    A run whose process is gone without a word was killed: it counts as stopped.

    Raises:
        StorageError: one of them cannot be read.
    """
    layout = Layout(output)
    ids = os.listdir(layout.runs) if os.path.isdir(layout.runs) else []
    ids = [run_id for run_id in ids if only in (None, run_id)]
    paths = [path for run_id in ids if os.path.exists(path := layout.record(run_id))]
    return sorted(map(_read_record, paths), key=lambda record: record.started)


def _read_record(path: str) -> RunRecord:
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        if fields["format"] > FORMAT:
            raise StorageError(f"{path} was written by a later version of this program.")
        record = dacite.from_dict(RunRecord, fields, dacite.Config(strict=True))
        for time in (record.started, record.ended):
            datetime.fromisoformat(time or record.started)
        return _settle(record)
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError, LookupError, RecursionError, dacite.DaciteError) as error:
        raise StorageError(
            f"{path} is not the record of a run: `local_runner.py runs --repair` sets it aside."
        ) from error


def _settle(record: RunRecord) -> RunRecord:
    """Mark as stopped what the record says is running although its process has ended."""
    if record.runner == "local" and record.state == "running" and record.process.has_ended():
        return end(record, "stopped")
    return record


def end(record: RunRecord, state: Literal["done", "failed", "stopped"]) -> RunRecord:
    """Return the record with a run, and the step that was running, in the state `state`."""
    steps = {
        name: dataclasses.replace(step, state=state) if step.state == "running" else step
        for name, step in record.steps.items()
    }
    return dataclasses.replace(record, state=state, steps=steps)
