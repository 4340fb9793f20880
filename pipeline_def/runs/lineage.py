"""Where a pushed model comes from: from step to step, back to the images."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.errors import DataError
from pipeline_def.runs.history import flatten
from pipeline_def.runs.record import RunRecord, Step

_PUSHER = "Pusher"

# Step → the settings that it follows.
_SETTINGS = {
    "ImageExampleGen": ("data", "ingest"),
    "SchemaGen": ("validation",),
    "ExampleValidator": ("validation",),
    "Transform": ("transform",),
    "Trainer": ("transform", "input", "augmentation", "model", "training", "transfer"),
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


def trace(records: Sequence[RunRecord], wanted: str) -> tuple[RunRecord, list[Origin]]:
    """Trace the model that was pushed as `wanted`, a version or its folder.

    Returns:
        The run that has pushed it, and every step that had a part in it: the push first, then
        what it used, and so on.

    Raises:
        DataError: none of the runs has pushed it.
    """
    run = _find_push(records, wanted)
    makers = find_makers(records)
    found: dict[str, Origin] = {}
    waiting = collections.deque([(run, _PUSHER)])
    while waiting:
        record, name = waiting.popleft()
        if name not in found:
            inputs = record.steps[name].inputs
            sources = {key: makers[uris[0]] for key, uris in inputs.items() if uris[0] in makers}
            found[name] = _describe(
                record, name, {key: maker for key, (_, maker) in sources.items()}
            )
            waiting.extend(sources.values())
    return run, list(found.values())


def find_makers(records: Sequence[RunRecord]) -> dict[str, tuple[RunRecord, str]]:
    """Return the run and the step that made each artifact, by its URI."""
    return {
        output.uri: (record, name)
        for record in reversed(records)
        for name, step in record.steps.items()
        if step.state == "done"
        for output in step.outputs.values()
    }


def _find_push(records: Sequence[RunRecord], wanted: str) -> RunRecord:
    """Return the first run that has pushed a model as `wanted`."""
    names = {wanted.rstrip("/"), os.path.abspath(wanted), os.path.realpath(wanted)}
    pushes = [(record, record.pushed) for record in records if record.pushed]
    for record, pushed in pushes:
        if names & {pushed.version, pushed.destination.rstrip("/")}:
            return record
    versions = ", ".join(sorted({pushed.version for _, pushed in pushes})) or "none"
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
