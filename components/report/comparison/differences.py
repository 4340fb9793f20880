"""What differs between two runs, apart from what their models answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from components.report.comparison.facts import ComparedRun, Difference

_MOST_NAMES = 6


class Part(NamedTuple):
    """A part of what two runs were made of, and what differs in it."""

    section: str
    """Of the page."""
    title: str
    differing: tuple[str, ...]
    """Names of what differs; empty if all is the same."""

    def __str__(self) -> str:
        """Name what differs, some of it if it is a lot."""
        names = ", ".join(self.differing[:_MOST_NAMES])
        more = f" and {len(self.differing) - _MOST_NAMES} more"
        return f"{self.title}: {names}{more if self.differing[_MOST_NAMES:] else ''}"


def list_parts(first: ComparedRun, second: ComparedRun) -> tuple[Part, ...]:
    """Say of images, settings, code and versions what differs in each."""
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
    """Return the values that differ, by their names; None stands for one that is not there."""
    names = sorted(first.keys() | second.keys())
    pairs = (Difference(name, first.get(name), second.get(name)) for name in names)
    return tuple(pair for pair in pairs if pair.first != pair.second)


def pair_data(first: ComparedRun, second: ComparedRun) -> tuple[Difference, ...]:
    """Return what is known of the images and how many each split has, whether it differs or not."""
    before, after = _describe_data(first), _describe_data(second)
    names = {**before, **after}
    pairs = (Difference(name, before.get(name), after.get(name)) for name in names)
    return tuple(pair for pair in pairs if (pair.first, pair.second) != (None, None))


def _describe_data(run: ComparedRun) -> dict[str, Any]:
    counts = {f"{split}: images": sum(labels.values()) for split, labels in run.examples.items()}
    classes = {f"{split}: classes": len(labels) for split, labels in run.examples.items()}
    return {**run.data, **counts, **classes}


def list_labels(first: ComparedRun, second: ComparedRun) -> list[Difference]:
    """Return the labels whose number of images differs in a split, the largest difference first."""
    found = list_differences(dict(_count_labels(first)), dict(_count_labels(second)))
    return sorted(found, key=lambda one: -abs((one.second or 0) - (one.first or 0)))


def _count_labels(run: ComparedRun) -> Iterator[tuple[str, int]]:
    for split, labels in run.examples.items():
        for label, count in labels.items():
            yield f"{split}: {label}", count
