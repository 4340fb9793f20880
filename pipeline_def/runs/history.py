"""What each run changed against the one before, and what that did to the accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_def.runs.record import RunRecord

CODE = "code of "
"""Begins the name of the digest of a step's code."""

IMAGES = "images"
"""The name of the change when the files are others."""


@dataclass(frozen=True)
class Change:
    """A setting, code or images other than in the run before; None where there was or is none."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Compared:
    """A run beside those before it."""

    record: RunRecord
    changes: tuple[Change, ...]
    """Since the last run of the same pipeline by the same runner."""
    accuracy_change: float | None
    """Since the last run that was measured on the same images and split."""


def compare(records: Sequence[RunRecord]) -> list[Compared]:
    """Compare each record with those before it."""
    facts: dict[tuple[str, str], dict[str, Any]] = {}
    accuracies: dict[tuple[Any, ...], float] = {}
    compared = []
    for record in records:
        key = (record.runner, record.pipeline)
        before = facts.get(key, {})
        # A run that failed in ingest says nothing about its images.
        new = {IMAGES: before.get(IMAGES), **_list_facts(record)}
        facts[key] = new
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
        compared.append(Compared(record, tuple(_list_changes(before, new)), gain))
    return compared


def _list_changes(before: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    """Yield nothing where there was no run before, nor for images that are known only now."""
    if not before:
        return
    for name in sorted(before.keys() | new.keys()):
        old = before.get(name)
        if old != new.get(name) and not (name == IMAGES and old is None):
            yield Change(name, old, new.get(name))


def _list_facts(record: RunRecord) -> dict[str, Any]:
    facts = dict(flatten(record.configuration))
    # The folder that the runs lie in is the same for all, also after it was moved.
    for place in ("output", "working_copy"):
        facts.pop(place, None)
    facts |= {f"{CODE}{step}": digest for step, digest in record.code.items()}
    if record.data.fingerprint:
        facts[IMAGES] = record.data.fingerprint
    return facts


def flatten(configuration: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting under the name that a user sets it by: `training.epochs`."""
    for name, value in configuration.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
