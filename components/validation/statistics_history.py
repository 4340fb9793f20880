"""Keeps the statistics of a run, which those of the next run are compared with."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from components.contract.example import TRAIN
from components.storage.tfx_filesystem import register_object_stores
from components.validation.feature_statistics import digest_statistics
from components.validation.history_lookup import (
    ENTRY_FILE,
    HistoryEntry,
    list_history,
    split_file,
)
from components.validation.statistics import read_statistics

_MOST_ENTRIES = 30


def span_of(statistics: types.Artifact) -> int:
    """Return the span of the examples behind an artifact; a double on Kubeflow."""
    return int(statistics.span or 0)


def add_to_history(folder: str, statistics: types.Artifact) -> None:
    """Copy what StatisticsGen wrote to `folder`, unless it equals the newest entry.

    The oldest entries are deleted once there are more than 30.
    """
    register_object_stores()
    entries = list_history(folder)
    digest = digest_statistics(read_statistics(statistics, TRAIN))
    if entries and entries[-1].digest == digest:
        return
    # Two runs within a second still have an order.
    now = max([int(time.time()), *(entry.time + 1 for entry in entries)])
    target = os.path.join(folder, str(now))
    for split in artifact_utils.decode_split_names(statistics.split_names):
        content = read_statistics(statistics, split).SerializeToString(deterministic=True)
        io_utils.write_bytes_file(split_file(target, split), content)
    facts = json.dumps(asdict(HistoryEntry(now, span_of(statistics), digest)), sort_keys=True)
    io_utils.write_string_file(os.path.join(target, ENTRY_FILE), facts)
    for entry in entries[: max(0, len(entries) + 1 - _MOST_ENTRIES)]:
        fileio.rmtree(os.path.join(folder, str(entry.time)))
