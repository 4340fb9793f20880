"""The two runs of a comparison, and what differs in their data, settings, code and versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

_MOST_NAMES = 6


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs."""

    name: str
    """A or B."""
    id: str
    title: str
    """Names the run as the list of runs does: its number and start."""
    output: str
    """Output folder of the run."""
    split: str
    """The evaluated split."""
    data: Mapping[str, Any]
    """Identifies the images, such as by folder and fingerprint of its listing."""
    examples: Mapping[str, Mapping[str, int]]
    """Split → label → examples."""
    configuration: Mapping[str, Any]
    """`section.field` → value."""
    code: Mapping[str, str]
    """Step → digest of its code."""
    versions: Mapping[str, str]
    """Package → version."""
    model: str = ""
    """URI of the model; the same for both runs if nothing was trained in between."""


class Difference(NamedTuple):
    """A fact that differs between the runs; None where it is missing."""

    name: str
    first: Any
    second: Any


class Part(NamedTuple):
    """A part of the runs, such as their settings, and what differs in it."""

    section: str
    """Section of the page."""
    title: str
    differing: tuple[str, ...]
    """Names of what differs; empty if all is the same."""

    def __str__(self) -> str:
        """Name what differs, up to a limit."""
        names = ", ".join(self.differing[:_MOST_NAMES])
        more = f" and {len(self.differing) - _MOST_NAMES} more"
        return f"{self.title}: {names}{more if self.differing[_MOST_NAMES:] else ''}"


def list_parts(first: ComparedRun, second: ComparedRun) -> tuple[Part, ...]:
    """List what differs in images, settings, code and versions."""
    data = [row.name for row in pair_data(first, second) if row.first != row.second]
    if not data and list_labels(first, second):
        data = ["images per label"]
    settings = list_differences(first.configuration, second.configuration)
    code = list_differences(first.code, second.code)
    versions = list_differences(first.versions, second.versions)
    return (
        Part("data", "images", tuple(data)),
        Part("settings", "settings", tuple(row.name for row in settings)),
        Part("code", "code of steps", tuple(row.name for row in code)),
        Part("code", "versions", tuple(row.name for row in versions)),
    )


def list_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the values that differ, by name; None stands for a missing value."""
    names = sorted(first.keys() | second.keys())
    pairs = (Difference(name, first.get(name), second.get(name)) for name in names)
    return tuple(pair for pair in pairs if pair.first != pair.second)


def pair_data(first: ComparedRun, second: ComparedRun) -> tuple[Difference, ...]:
    """Return the facts about the images and splits of both runs, even if they are equal."""
    before, after = _describe_data(first), _describe_data(second)
    names = {**before, **after}
    pairs = (Difference(name, before.get(name), after.get(name)) for name in names)
    return tuple(pair for pair in pairs if (pair.first, pair.second) != (None, None))


def _describe_data(run: ComparedRun) -> dict[str, Any]:
    counts = {f"{split}: images": sum(labels.values()) for split, labels in run.examples.items()}
    classes = {f"{split}: classes": len(labels) for split, labels in run.examples.items()}
    return {**run.data, **counts, **classes}


def list_labels(first: ComparedRun, second: ComparedRun) -> list[Difference]:
    """Return the labels whose image counts differ in a split, the largest difference first."""
    found = list_differences(dict(_count_labels(first)), dict(_count_labels(second)))
    return sorted(found, key=lambda one: -abs((one.second or 0) - (one.first or 0)))


def _count_labels(run: ComparedRun) -> Iterator[tuple[str, int]]:
    for split, labels in run.examples.items():
        for label, count in labels.items():
            yield f"{split}: {label}", count
