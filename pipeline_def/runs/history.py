"""What changed between runs, and where a pushed model comes from."""

import collections
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.errors import DataError
from pipeline_def.runs.record import RunRecord, Step
from pipeline_def.steps import PUSHER, STEPS

CODE = "code of "
"""Prefix of the change of a step's code digest."""

IMAGES = "images"
"""Name of the change of the images' fingerprint."""

CORRECTIONS = "corrections"
"""Name of the change of the content of the corrections file."""


@dataclass(frozen=True)
class Change:
    """A setting, code digest or fingerprint that differs from the previous run; None if absent."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class ComparedRun:
    """A run compared with the runs before it."""

    record: RunRecord
    changes: tuple[Change, ...]
    """Changes since the previous run of the same pipeline."""
    accuracy_change: float | None
    """Change since the last run that was evaluated on the same images and split."""


@dataclass(frozen=True)
class Origin:
    """A step that contributed to a model."""

    name: str
    run: str
    """Id of the run that executed it. Later runs may have reused its outputs from the cache."""
    step: Step
    code: str
    """Digest of its code; "" for TFX's own steps."""
    settings: dict[str, Any]
    """For example `training.epochs`."""
    sources: dict[str, str]
    """Input → the step that produced it; "" if no record names it."""


def compare(records: Sequence[RunRecord]) -> list[ComparedRun]:
    """Compare each record with those before it."""
    facts: dict[str, dict[str, Any]] = {}
    accuracies: dict[tuple[Any, ...], float] = {}
    compared = []
    for record in records:
        before = facts.get(record.pipeline, {})
        # A run that failed in ingest has no fingerprint.
        known = {name: before.get(name) for name in (IMAGES, CORRECTIONS)}
        new = known | _list_facts(record)
        facts[record.pipeline] = new
        accuracy = record.metrics.get("accuracy")
        same = (
            record.pipeline,
            record.data.fingerprint,
            record.split,
            *record.data.examples.items(),
        )
        gain = None
        if accuracy is not None:
            gain = accuracy - accuracies[same] if same in accuracies else None
            accuracies[same] = accuracy
        compared.append(ComparedRun(record, tuple(_list_changes(before, new)), gain))
    return compared


def _list_changes(before: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    """Yield the changes; none for a first run, or for images whose old fingerprint is unknown."""
    if not before:
        return
    for name in sorted(before.keys() | new.keys()):
        old = before.get(name)
        if old != new.get(name) and not (name == IMAGES and old is None):
            yield Change(name, old, new.get(name))


def _list_facts(record: RunRecord) -> dict[str, Any]:
    facts = dict(flatten(record.configuration))
    # All runs share the output folder, even after it was moved.
    for place in ("output", "working_copy"):
        facts.pop(place, None)
    facts |= {f"{CODE}{step}": digest for step, digest in record.code.items()}
    if record.data.fingerprint:
        facts[IMAGES] = record.data.images
        facts[CORRECTIONS] = record.data.corrections.get("sha256", "")[:8] or None
    return facts


def flatten(configuration: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting under its option name, such as `training.epochs`."""
    for name, value in configuration.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def trace(records: Sequence[RunRecord], wanted: str) -> tuple[RunRecord, list[Origin]]:
    """Trace a pushed model, named by its version or folder, back to the images.

    Returns:
        The run that pushed it, and every step that contributed, starting with the push.

    Raises:
        DataError: no run pushed this model.
    """
    run = _find_push(records, wanted)
    producers = find_producers(records)
    origins: dict[str, Origin] = {}
    waiting = collections.deque([(run, PUSHER.id)])
    while waiting:
        record, name = waiting.popleft()
        if name not in origins:
            inputs = record.steps[name].inputs
            sources = {k: producers[uris[0]] for k, uris in inputs.items() if uris[0] in producers}
            origins[name] = _describe(record, name, {k: step for k, (_, step) in sources.items()})
            waiting.extend(sources.values())
    return run, list(origins.values())


def find_producers(records: Sequence[RunRecord]) -> dict[str, tuple[RunRecord, str]]:
    """Return the run and the step that produced each artifact, by URI."""
    return {
        output.uri: (record, name)
        for record in reversed(records)
        for name, step in record.steps.items()
        if step.state == "done"
        for output in step.outputs.values()
    }


def _find_push(records: Sequence[RunRecord], wanted: str) -> RunRecord:
    """Return the first run that pushed the model."""
    names = {wanted.rstrip("/"), os.path.abspath(wanted), os.path.realpath(wanted)}
    pushes = [(record, record.pushed) for record in records if record.pushed]
    for record, pushed in pushes:
        if names & {pushed.version, pushed.destination.rstrip("/")}:
            return record
    versions = ", ".join(sorted({pushed.version for _, pushed in pushes})) or "none"
    raise DataError(f"No recorded run pushed {wanted!r}. Pushed versions: {versions}.")


def _describe(record: RunRecord, name: str, sources: dict[str, str]) -> Origin:
    step = record.steps[name]
    chosen = {section: record.configuration.get(section) for section in STEPS[name].settings}
    return Origin(
        name=name,
        run=record.id,
        step=step,
        code=record.code.get(name, ""),
        settings=dict(flatten(chosen)),
        sources={key: sources.get(key, "") for key in step.inputs},
    )
