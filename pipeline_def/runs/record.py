"""The record of a run, `runs/<id>/run.json`, and the recorder that rewrites it after every step.

`local_runner.py runs`, the lineage of a model and the summary read it.
"""

import contextlib
import dataclasses
import functools
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from components.contract.artifact_files import move_paths
from components.contract.configuration import to_dict
from components.contract.errors import StorageError
from components.host.lock import is_locked
from components.host.machine import read_versions
from components.host.stopping import before_stopping
from pipeline_def.layout import Layout

FORMAT = 2
"""Version of the file format. Increase it when older readers would misunderstand the file."""

_strict = with_config(ConfigDict(strict=True))


@_strict
@dataclass(frozen=True)
class StepOutput:
    """An artifact."""

    uri: str
    type: str
    properties: dict[str, Any] = field(default_factory=dict)
    """Scalar properties only, without curves and matrices."""

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file of an artifact on this machine."""
        with open(os.path.join(self.uri, name), encoding="utf-8") as file:
            facts: dict[str, Any] = json.load(file)
        return facts


@_strict
@dataclass(frozen=True)
class Step:
    """A step of a run."""

    state: Literal["running", "done", "cached", "failed", "stopped"]
    started: str = ""
    """ISO 8601, UTC."""
    seconds: float | None = None
    inputs: dict[str, list[str]] = field(default_factory=dict)
    """Name → URIs."""
    outputs: dict[str, StepOutput] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    """Execution properties of a step with a lookup, which has resolved them."""
    made_by: str = ""
    """Id of the run that produced the outputs of a cached step; "" if no record names it."""


Steps = Iterator[tuple[str, Callable[[], Step]]]
"""Name of each step, in topological order, and the function that runs it."""


@_strict
@dataclass(frozen=True)
class Data:
    """The images of a run, as reported by ingest."""

    folder: str = ""
    fingerprint: str = ""
    """Fingerprint of the folder's listing."""
    span: int | None = None
    version: int | None = None
    examples: dict[str, int] = field(default_factory=dict)
    """Split → number of examples."""
    corrections: dict[str, Any] = field(default_factory=dict)
    """The corrections: `file`, `sha256`, and numbers by result, such as `relabeled`."""

    @property
    def images(self) -> str:
        """Fingerprint of the images without their corrections."""
        return self.fingerprint.partition(",corrections:")[0]


@_strict
@dataclass(frozen=True)
class Pushed:
    """Where the blessed model of a run was pushed."""

    version: str
    destination: str
    """Folder, as a path or URL."""


@_strict
@dataclass(frozen=True)
class RunRecord:
    """One run of a pipeline. Fields after `host` are filled in while it runs."""

    id: str
    """Start time in the local time zone."""
    pipeline: str
    started: str
    """ISO 8601, UTC."""
    configuration: dict[str, Any]
    """Section → field → value, as users set them."""
    code: dict[str, str]
    """Step → digest of its code, for our own steps."""
    versions: dict[str, str]
    """Versions of Python and the main libraries."""
    program: str = ""
    """Digest of all code, libraries and files that decide on results, beside the configuration and
    the images; "" in runs by earlier versions."""
    host: str = ""
    """Machine that runs the pipeline."""
    state: Literal["running", "done", "failed", "stopped"] = "running"
    ended: str | None = None
    error: str = ""
    """Reason of a failure, in one sentence."""
    steps: dict[str, Step] = field(default_factory=dict)
    """Steps in the order in which they started."""
    data: Data = field(default_factory=Data)
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Metrics on all examples of `split`; null where undefined."""
    split: str = ""
    """Split that the model was evaluated on."""
    blessed: bool | None = None
    outcome: str = ""
    """Verdict: blessed, undecided or refused."""
    headline: str = ""
    """The verdict in one sentence."""
    reasons: list[str] = field(default_factory=list)
    """Why the model was blessed or not."""
    evidence: str = ""
    """How well the images support the verdict, in a sentence; "" in runs by earlier versions."""
    baseline: dict[str, Any] | None = None
    """The previous model: `version`, and `accuracy` on the same split."""
    pushed: Pushed | None = None
    search: dict[str, Any] = field(default_factory=dict)
    """What `training.minutes` found: number of `trials`, the `chosen` one and `text`; empty without
    a search."""
    format: int = FORMAT


def now() -> str:
    """Return the current time as ISO 8601 in UTC, in milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_record(record: RunRecord, output: str) -> None:
    """Write or replace the file of a record atomically.

    Raises:
        StorageError: the folder is not writable.
    """
    path = Layout(output).record(record.id)
    unfinished = f"{path}.unfinished"
    # Errors may name files that are not UTF-8, and readers would reject the record.
    text = json.dumps(to_dict(record), ensure_ascii=False).encode(errors="replace")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(json.loads(text), file, indent=1)
        os.replace(unfinished, path)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror}.") from error


def read_records(output: str, only: str | None = None) -> list[RunRecord]:
    """Return the records in the folder `output`, or the record of run `only`; newest last.

    A run that was killed counts as stopped. If the folder was moved since, the records have its
    present paths.

    Raises:
        StorageError: a record cannot be read.
    """
    layout = Layout(output)
    ids = os.listdir(layout.runs) if os.path.isdir(layout.runs) else []
    ids = [run_id for run_id in ids if only in (None, run_id)]
    paths = [path for run_id in ids if os.path.exists(path := layout.record(run_id))]
    records = sorted(map(_read_record, paths), key=lambda record: record.started)
    host = socket.gethostname()
    running = [r.id for r in records if (r.state, r.host) == ("running", host)]
    # A run holds the lock, so only the newest one can be alive.
    killed = running[:-1] if is_locked(layout.lock) else running
    return [end(record, "stopped") if record.id in killed else record for record in records]


@functools.cache
def _make_adapter() -> TypeAdapter[RunRecord]:
    """Return the validator of records, which takes longer to make than to use."""
    return TypeAdapter(RunRecord)


def _read_record(path: str) -> RunRecord:
    try:
        with open(path, "rb") as file:
            text = file.read()
        content = json.loads(text)
        if content["format"] > FORMAT:
            raise StorageError(f"{path} was written by a later version of this program.")
        record = _make_adapter().validate_json(text)
        former, output = str(record.configuration.get("output")), str(Path(path).parents[2])
        if os.path.isabs(former):
            moved = move_paths(text, former, os.path.abspath(output))
            record = record if moved == text else _make_adapter().validate_json(moved)
        for time in (record.started, record.ended):
            datetime.fromisoformat(time or record.started)
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError, LookupError, RecursionError, ValidationError) as error:
        raise StorageError(f"{path} is not a valid run record: move its folder away.") from error
    return record


def end(record: RunRecord, state: Literal["done", "failed", "stopped"]) -> RunRecord:
    """Return the record with the run, and the step that was running, in the state `state`."""
    steps = {
        name: dataclasses.replace(step, state=state) if step.state == "running" else step
        for name, step in record.steps.items()
    }
    return dataclasses.replace(record, state=state, steps=steps)


def find_producers(records: Sequence[RunRecord]) -> dict[str, tuple[RunRecord, str]]:
    """Return the last run, and its step, that produced each artifact, by URI.

    Once `metadata.sqlite` has been removed, artifacts get the URIs of earlier ones.
    """
    return {
        output.uri: (record, name)
        for record in records
        for name, step in record.steps.items()
        if step.state == "done"
        for output in step.outputs.values()
    }


class Recorder:
    """Holds the record of one run and writes it after every change."""

    def __init__(
        self,
        output: str,
        *,
        pipeline: str,
        configuration: dict[str, Any],
        code: dict[str, str],
        program: str = "",
    ) -> None:
        """Start the record of a run in the folder `output`.

        Raises:
            StorageError: the record cannot be written.
        """
        self.output = output
        earlier: list[RunRecord] = []
        # Unreadable records, for instance of a later version, must not prevent a run.
        with contextlib.suppress(StorageError):
            earlier = read_records(output)
        self._producers = find_producers(earlier)
        self.record = RunRecord(
            id=_new_id(),
            pipeline=pipeline,
            started=now(),
            configuration=configuration,
            code=code,
            program=program,
            versions={"python": platform.python_version(), **read_versions()},
            host=socket.gethostname(),
        )
        write_record(self.record, output)

    def change(self, **fields: Any) -> None:
        """Replace fields of the record."""
        self.record = dataclasses.replace(self.record, **fields)
        write_record(self.record, self.output)

    def step_started(self, name: str) -> None:
        """Record that a step started."""
        self.change(steps={**self.record.steps, name: Step("running", started=now())})

    def step_ended(self, name: str, step: Step, **facts: Any) -> None:
        """Record how a step ended, with record fields derived from its outputs."""
        if step.state == "cached":
            known = (o.uri for o in step.outputs.values() if o.uri in self._producers)
            made_by = next((self._producers[uri][0].id for uri in known), "")
            step = dataclasses.replace(step, made_by=made_by)
        self.change(steps={**self.record.steps, name: step}, **facts)

    def end(self, state: Literal["done", "failed", "stopped"], error: str = "") -> None:
        """Record how the run ended. A step that was running ends in the same state."""
        self.record = end(self.record, state)
        self.change(error=error, ended=now())

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record an exception that leaves the context, or that the process is stopped in it."""
        try:
            with before_stopping(lambda: self.end("stopped")):
                yield
        except KeyboardInterrupt:
            self.end("stopped")
            raise
        except Exception as error:
            self.end("failed", describe_failure(error))
            raise


def describe_failure(error: Exception) -> str:
    """Return the first line of an exception's message, or the name of its class.

    The reason of an error in a graph of TensorFlow is the last line before the operations.
    """
    text = str(error).strip() or type(error).__name__
    before = text.partition("[[")[0] if text.startswith("Graph execution error:") else ""
    return (before.strip().splitlines()[::-1] or text.splitlines())[0]


def _new_id() -> str:
    nanoseconds = time.time_ns()
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(nanoseconds // 10**9))
    return f"{start}.{nanoseconds % 10**9:09d}"
