"""Statistics of earlier runs, which those of the next run are compared with.

TFX would find them in ML Metadata, which open-source Kubeflow has no resolvers for. So they are
kept in a folder, as pushed models are.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass

from tfx import types
from tfx.components.statistics_gen.executor import DEFAULT_FILE_NAME
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from components.contract.splits import TRAIN
from components.storage.tfx_filesystem import register_object_stores
from components.validation.feature_statistics import Statistics, digest_statistics
from components.validation.statistics import read_statistics

# Written last: an entry without it is incomplete.
_ENTRY_FILE = "kept.json"

_MOST_ENTRIES = 30


@dataclass(frozen=True)
class HistoryEntry:
    """A copy of what StatisticsGen wrote in one run."""

    time: int
    """Seconds since 1970-01-01; also the name of its folder."""
    span: int
    """Span of the examples; 0 where the data has no spans."""
    digest: str
    """Digest of the train split's statistics."""


def span_of(statistics: types.Artifact) -> int:
    """Return the span of the examples behind an artifact; a double on Kubeflow."""
    return int(statistics.span or 0)


def _digest(statistics: types.Artifact) -> str:
    return digest_statistics(read_statistics(statistics, TRAIN))


def add_to_history(folder: str, statistics: types.Artifact) -> None:
    """Copy what StatisticsGen wrote to `folder`, unless it equals the newest entry.

    The oldest entries are deleted once there are more than 30.
    """
    register_object_stores()
    entries, digest = list_history(folder), _digest(statistics)
    if entries and entries[-1].digest == digest:
        return
    # Two runs within a second still have an order.
    now = max([int(time.time()), *(entry.time + 1 for entry in entries)])
    target = os.path.join(folder, str(now))
    for split in artifact_utils.decode_split_names(statistics.split_names):
        content = read_statistics(statistics, split).SerializeToString(deterministic=True)
        io_utils.write_bytes_file(_split_file(target, split), content)
    facts = json.dumps(asdict(HistoryEntry(now, span_of(statistics), digest)), sort_keys=True)
    io_utils.write_string_file(os.path.join(target, _ENTRY_FILE), facts)
    for entry in entries[: max(0, len(entries) + 1 - _MOST_ENTRIES)]:
        fileio.rmtree(os.path.join(folder, str(entry.time)))


def list_history(folder: str) -> list[HistoryEntry]:
    """Return the complete entries in `folder`, the oldest first."""
    register_object_stores()
    if not fileio.isdir(folder):
        return []
    # TensorFlow ends the names of remote folders with a slash.
    names = (name.rstrip("/") for name in fileio.listdir(folder))
    numbers = sorted(int(name) for name in names if name.isdigit())
    entries = (read_entry(os.path.join(folder, str(number))) for number in numbers)
    return [entry for entry in entries if entry]


def read_entry(path: str) -> HistoryEntry | None:
    """Return the entry in folder `path`; None when it is incomplete."""
    file = os.path.join(path, _ENTRY_FILE)
    if not fileio.exists(file):
        return None
    return HistoryEntry(**json.loads(io_utils.read_string_file(file)))


def find_earlier(folder: str, statistics: types.Artifact) -> str:
    """Return the folder of the entry to compare `statistics` with, or "".

    That is the newest entry of the latest span before; where there is none, the newest one with
    other content, as a run on unchanged examples would otherwise be compared with itself.
    """
    entries = list_history(folder)
    if not entries:
        return ""
    digest, span = _digest(statistics), span_of(statistics)
    others = [entry for entry in entries if entry.digest != digest]
    before = [entry for entry in others if entry.span < span]
    if before:
        others = [max(before, key=lambda entry: (entry.span, entry.time))]
    return os.path.join(folder, str(others[-1].time)) if others else ""


def read_entry_statistics(path: str, split: str) -> Statistics | None:
    """Return the statistics of a split in the entry at `path`; None when it has no such split."""
    register_object_stores()
    file = _split_file(path, split)
    return Statistics.FromString(io_utils.read_bytes_file(file)) if fileio.exists(file) else None


def _split_file(path: str, split: str) -> str:
    return os.path.join(path, f"Split-{split}", DEFAULT_FILE_NAME)
