"""What all services are told about a run, from its record and the files of its output."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from components.contract.errors import UserError
from components.storage.saved_model import model_digest
from pipeline_def.runs.history import flatten
from pipeline_def.runs.record import Output, RunRecord
from pipeline_def.steps import PUSHER, REPORT, TRAINER

# The others describe machines, or may hold secrets, as the variables of Kubeflow's steps do.
_PARAMETERS = frozenset(
    (
        *("data", "ingest", "validation", "transform", "model", "input", "augmentation"),
        *("training", "transfer", "export", "evaluation"),
    )
)

_FILES = {"html": "report.html", "card": "model_card.md", "metrics": "metrics.json"}
"""Output of the report → its file."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as the services see it."""

    record: RunRecord
    parameters: dict[str, str]
    """Option → value, as text."""
    tags: dict[str, str]
    """The lineage, from the images' fingerprint to the pushed version."""
    epochs: dict[str, list[float | None]] = field(default_factory=dict)
    """Metric → value after each epoch."""
    files: dict[str, str] = field(default_factory=dict)
    """Name of an artifact → path of the file."""


def describe_run(record: RunRecord) -> TrackedRun:
    """Collect what the services are told about a run; what it has not made is left out."""
    chosen = {n: value for n, value in record.configuration.items() if n in _PARAMETERS}
    parameters = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in flatten(chosen)
        if value not in (None, {}, [])
    }
    return TrackedRun(
        record, parameters, _read_tags(record), _read_epochs(record), _find_files(record)
    )


def milliseconds(time: str) -> int:
    """Return milliseconds since 1970 of an ISO 8601 time."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def find_output(record: RunRecord, step: str, name: str) -> Output | None:
    """Return an output of a step, None if the run has not made it."""
    return record.steps[step].outputs.get(name) if step in record.steps else None


def _read_tags(record: RunRecord) -> dict[str, str]:
    pushed = record.pushed
    model = find_output(record, TRAINER.id, "model")
    folder = pushed.destination if pushed else model and f"{model.uri}/Format-Serving"
    digest = ""
    # Old models are removed; their runs stay.
    with contextlib.suppress(UserError, OSError):
        digest = model_digest(folder) if folder else ""
    tags = {
        "pipeline": record.pipeline,
        "pipeline_run": record.id,
        "images": record.data.folder,
        "images_fingerprint": record.data.fingerprint,
        "corrections_sha256": record.data.corrections.get("sha256", ""),
        "model_digest": digest,
        "verdict": record.outcome,
        "grade": record.grade,
        "pushed_version": pushed.version if pushed else "",
        "pushed_to": pushed.destination if pushed else "",
        **{f"code_digest.{step}": digest for step, digest in record.code.items()},
        **{f"version.{name}": version for name, version in record.versions.items()},
    }
    return {name: value for name, value in tags.items() if value}


def _read_epochs(record: RunRecord) -> dict[str, list[float | None]]:
    model_run = find_output(record, TRAINER.id, "model_run")
    if model_run is None:
        return {}
    with contextlib.suppress(OSError, ValueError):
        history: Mapping[str, Any] = model_run.read_json("history.json")
        return {name: values for name, values in history.items() if isinstance(values, list)}
    return {}


def _find_files(record: RunRecord) -> dict[str, str]:
    outputs = {name: find_output(record, REPORT.id, name) for name in _FILES}
    # On Kubeflow the artifact itself is the file.
    paths = {
        _FILES[name]: one.uri if os.path.isfile(one.uri) else f"{one.uri}/{_FILES[name]}"
        for name, one in outputs.items()
        if one
    }
    return {name: path for name, path in paths.items() if os.path.isfile(path)}


def list_model_files(run: TrackedRun) -> dict[str, str]:
    """Return path in the pushed model → path on this machine; empty unless it is here."""
    pushed = run.record.pushed
    top = pushed.destination if pushed else ""
    copy = find_output(run.record, PUSHER.id, "pushed_model")
    if copy and not os.path.isdir(top):
        top = copy.uri
    found = (os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names)
    return {os.path.relpath(path, top): path for path in sorted(found)}
