"""Where a pushed model comes from: from step to step, back to the images."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.errors import DataError
from pipeline_def.runs.history import flatten
from pipeline_def.runs.record import Data, Pushed, RunRecord, Step

_PUSHER = "Pusher"

# Step → the settings that it follows.
_SETTINGS = {
    "ImageExampleGen": ("data", "ingest"),
    "SchemaGen": ("validation",),
    "ExampleValidator": ("validation",),
    "Transform": ("transform",),
    "Trainer": ("transform", "input", "augmentation", "model", "training"),
    "Evaluator": ("evaluation",),
}


@dataclass(frozen=True)
class Origin:
    """A step that had a part in the model."""

    name: str
    run: str
    """Executed it; later runs may have taken its outputs from the cache."""
    step: Step
    code: str
    """Digest of its code; "" for TFX's own."""
    settings: dict[str, Any]
    """Such as `training.epochs`."""
    sources: dict[str, str]
    """Name of each input → the step that made it; "" where no record tells."""


@dataclass(frozen=True)
class Lineage:
    """A pushed model, and every step that it was made by."""

    pushed: Pushed
    data: Data
    metrics: dict[str, float | None]
    """On the split `split`."""
    split: str
    origins: tuple[Origin, ...]
    """The push first, then what it used, and so on."""


def trace(records: Sequence[RunRecord], wanted: str) -> Lineage:
    """Trace the model that was pushed as `wanted`, a version or its folder.

    Raises:
        DataError: none of the runs has pushed it.
    """
    run = _find_push(records, wanted)
    makers = {
        output.uri: (record, name)
        for record in reversed(records)
        for name, step in record.steps.items()
        if step.state == "done"
        for output in step.outputs.values()
    }
    found: dict[str, Origin] = {}
    waiting = collections.deque([(run, _PUSHER)])
    while waiting:
        record, name = waiting.popleft()
        if name not in found:
            inputs = record.steps[name].inputs
            sources = {key: makers[uris[0]] for key, uris in inputs.items() if uris[0] in makers}
            found[name] = _describe(record, name, {key: by for key, (_, by) in sources.items()})
            waiting.extend(sources.values())
    assert run.pushed is not None
    return Lineage(run.pushed, run.data, run.metrics, run.split, tuple(found.values()))


def _find_push(records: Sequence[RunRecord], wanted: str) -> RunRecord:
    """Return the first run that has pushed a model as `wanted`."""
    names = {wanted.rstrip("/"), os.path.abspath(wanted), os.path.realpath(wanted)}
    pushes = {r.pushed.version: r for r in reversed(records) if r.pushed}
    for version, record in pushes.items():
        if record.pushed and names & {version, record.pushed.destination.rstrip("/")}:
            return record
    versions = ", ".join(sorted(pushes)) or "none"
    raise DataError(f"No recorded run has pushed {wanted}; versions pushed: {versions}.")


def _describe(record: RunRecord, name: str, sources: dict[str, str]) -> Origin:
    step = record.steps[name]
    chosen = {section: record.configuration.get(section) for section in _SETTINGS.get(name, ())}
    return Origin(
        name=name,
        run=record.id,
        step=step,
        code=record.code.get(name, ""),
        settings=dict(flatten(chosen)),
        sources={key: sources.get(key, "") for key in step.inputs},
    )
