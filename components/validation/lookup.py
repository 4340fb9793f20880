"""Find the statistics of an earlier run to compare with, without importing TensorFlow or TFX.

TFX would find them in ML Metadata, but open-source Kubeflow has no resolvers. So they are kept in a
folder, like pushed models.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from components.contract.configuration import from_dict, from_json
from components.contract.errors import StorageError
from components.contract.printable import read_number
from components.contract.properties import EXAMPLES_KEY_PROPERTY, LookupInput
from components.storage.folder import is_file, list_folders, read_bytes
from components.validation.config import ValidationConfig
from components.validation.tfdv_files import (
    Statistics,
    read_statistics,
    statistics_file,
)

FOUND_KEY = "found_statistics"
"""Execution property set by the lookup: the folder of earlier statistics, or ""."""

EXAMPLES_KEY = "examples"
"""Property of the lookup on Kubeflow: what ImageExampleGen's lookup found, JSON. The lookup runs
beside it, before there are statistics."""

HISTORY_KEY = "statistics_history"
CONFIG_KEY = "config"

# Written last, so an entry without it is incomplete.
ENTRY_FILE = "kept.json"


@dataclass(frozen=True)
class HistoryEntry:
    """A copy of one run's statistics."""

    time: int
    """Unix time in seconds; also the name of the entry's folder."""
    span: int
    """Span of the examples; 0 if the data has no spans."""
    examples_key: str = ""
    """Digest of what decided on the examples; empty if it is unknown."""


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Find the folder of earlier statistics."""
    if is_drift_off(properties) or not properties[HISTORY_KEY]:
        return {FOUND_KEY: ""}
    if examples := properties.get(EXAMPLES_KEY):
        known = json.loads(examples)
        counted = LookupInput("", int(known["span"] or 0), known[EXAMPLES_KEY_PROPERTY])
    else:
        counted = inputs["statistics"]
    return {FOUND_KEY: find_earlier(properties[HISTORY_KEY], counted)}


def is_drift_off(properties: Mapping[str, Any]) -> bool:
    """Return whether the comparison is turned off."""
    return from_json(ValidationConfig, properties[CONFIG_KEY]).drift == "off"


def find_earlier(folder: str, counted: LookupInput) -> str:
    """Return the folder of the entry to compare with, or "".

    This is the newest entry of the latest earlier span. Without one, it is the newest entry of
    other examples, so that a run on unchanged examples is not compared with itself. It reads the
    span and the key of the examples, which are known before the statistics are.
    """
    key = counted.examples_key
    entries = [entry for entry in list_history(folder) if not key or entry.examples_key != key]
    if before := [entry for entry in entries if entry.span < counted.span]:
        entries = [max(before, key=lambda entry: (entry.span, entry.time))]
    return os.path.join(folder, str(entries[-1].time)) if entries else ""


def list_history(folder: str) -> list[HistoryEntry]:
    """Return the complete entries in `folder`, oldest first."""
    numbers = sorted(number for number in map(read_number, list_folders(folder)) if number)
    entries = (read_entry(os.path.join(folder, str(number))) for number in numbers)
    return [entry for entry in entries if entry]


def read_entry(path: str) -> HistoryEntry | None:
    """Return the entry in folder `path`; None if it is incomplete."""
    file = os.path.join(path, ENTRY_FILE)
    if not is_file(file):
        return None
    try:
        return from_dict(HistoryEntry, json.loads(read_bytes(file)))
    except ValueError as error:
        raise _damaged(path, error) from error


def read_entry_statistics(path: str, split: str) -> Statistics | None:
    """Return the statistics of a split in the entry at `path`; None if it has no such split."""
    try:
        return read_statistics(path, split) if is_file(statistics_file(path, split)) else None
    except DecodeError as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> StorageError:
    reason = str(error).rstrip(".")
    return StorageError(
        f"The statistics of an earlier run in {path} are damaged ({reason}). Remove that folder."
    )
