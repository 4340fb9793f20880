"""Finds and repairs damaged bookkeeping of an output folder, quickly and without TFX."""

import contextlib
import glob
import os
import sqlite3
import time
from collections.abc import Iterator, Set

from components.contract.errors import StorageError
from pipeline_def.layout import Layout
from pipeline_def.runs.record import read_records
from pipeline_def.steps import STEPS

# The table in which ML Metadata stores its version.
_OURS = "MLMDEnv"

# The folder of a step, and below it those of its outputs and of TFX itself. Outputs have no dot in
# their names, unlike files that other programs leave.
_BELOW_STEPS = ("", "/[!.]*[!.]", "/.system", "/.system/*")


def check_places(layout: Layout) -> None:
    """Raise `StorageError` if something else is where a folder or file will be written."""
    artifacts = glob.escape(layout.artifacts)
    patterns = (f"{artifacts}/{step}{below}" for step in STEPS for below in _BELOW_STEPS)
    below = [path for pattern in patterns for path in glob.glob(pattern)]
    top = (layout.artifacts, layout.checkpoints, layout.listings, layout.logs, layout.pushed)
    files = (layout.files, layout.summary, layout.report, layout.refused_report)
    for path in (*top, layout.runs, layout.statistics, *below):
        if os.path.lexists(path) and not os.path.isdir(path) and path not in files:
            raise StorageError(f"{path} is not a folder: move it away, and run again.")
    for path in files:
        if os.path.lexists(path) and not os.path.isfile(path):
            raise StorageError(f"{path} is not a regular file: move it away, and run again.")


def check_metadata(layout: Layout) -> None:
    """Raise `StorageError` if ML Metadata's file is damaged or belongs to another program."""
    if problem := find_problem(layout.metadata):
        aside = f"Set it aside with `local_runner.py runs --repair --output {layout.output}`"
        raise _explain(layout, problem, f"{aside}, or choose a new --output.")


def explain_inconsistency(layout: Layout, problem: str) -> StorageError:
    """Return the error for metadata whose file is intact but whose content ML Metadata refuses."""
    advice = "Move it away, and run again: the next run starts over; pushed models stay."
    return _explain(layout, problem, advice)


def _explain(layout: Layout, problem: str, advice: str) -> StorageError:
    """Give the advice for damaged metadata, which must not be followed for intact ones."""
    if any(word in problem for word in ("locked", "busy", "readonly")):
        return StorageError(
            f"{layout.metadata} cannot be written ({problem}): end the program that uses it, or "
            f"make it writable, and run again."
        )
    return StorageError(f"{layout.metadata} cannot be used: {problem}. {advice}")


def find_problem(path: str) -> str:
    """Return what is wrong with ML Metadata's file; "" if it is fine or does not exist."""
    if not os.path.lexists(path):
        return ""
    if not os.path.isfile(path):
        return "it is not a regular file"
    try:
        # Opened for writing, as a kill may have left a transaction to roll back.
        with contextlib.closing(sqlite3.connect(f"file:{_quote(path)}?mode=rw", uri=True)) as store:
            [[verdict]] = store.execute("PRAGMA quick_check(1)").fetchall()
            names = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = {name for [name] in names}
            if tables and _OURS not in tables:
                return "it is another program's database"
            inconsistency = next(_find_inconsistencies(store, tables), "")
    except (sqlite3.Error, ValueError) as error:
        return str(error)
    return inconsistency if verdict == "ok" else " ".join(str(verdict).split())


def _find_inconsistencies(store: sqlite3.Connection, tables: Set[str]) -> Iterator[str]:
    """Yield what makes ML Metadata abort the process, or TFX fail without a reason."""
    unmade = "SELECT 1 FROM Artifact WHERE id NOT IN (SELECT artifact_id FROM Event)"
    if {"Artifact", "Event"} <= tables and store.execute(unmade).fetchone():
        yield "Artifact has rows that Event does not refer to"
    for table in sorted(tables):
        for _, column, kind, *_ in store.execute(f'PRAGMA table_info("{table}")').fetchall():
            found = f'SELECT 1 FROM "{table}" WHERE'
            if "INT" in kind and store.execute(f"{found} typeof({column}) = 'text'").fetchone():
                yield f"{table}.{column} holds text"
            parent = column.removeprefix("parent_").removesuffix("_id").capitalize()
            rows = f"{found} {column} NOT IN (SELECT id FROM {parent})"
            if column.endswith("_id") and parent in tables and store.execute(rows).fetchone():
                yield f"{table} refers to rows of {parent} that are missing"


def _quote(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def set_leftovers_aside(layout: Layout) -> str:
    """Move away results without metadata; return a message, or "" if there are none.

    A new ML Metadata numbers results from 1 again, so they would mix with those of the next run.
    """
    if os.path.exists(layout.metadata) or not os.path.isdir(layout.artifacts):
        return ""
    if not any(os.scandir(layout.artifacts)):
        return ""
    place = _set_aside(layout, [layout.artifacts])
    return f"{layout.artifacts} had results without metadata; they were moved to {place}."


def repair(layout: Layout) -> Iterator[str]:
    """Set unreadable metadata and records aside; yield a message for each repair.

    Pushed models, checkpoints, statistics and images stay.
    """
    if problem := find_problem(layout.metadata):
        damaged = [layout.metadata, f"{layout.metadata}-journal", layout.artifacts]
        place = _set_aside(layout, damaged)
        yield (
            f"Metadata and results of earlier runs were moved to {place} ({problem}). The next run "
            "starts from scratch. Remove that folder when you no longer need it."
        )
    for name in os.listdir(layout.runs) if os.path.isdir(layout.runs) else []:
        if os.path.exists(layout.record(name)) and not _is_readable(layout, name):
            place = _set_aside(layout, [os.path.dirname(layout.record(name))])
            yield f"The record of run {name} was unreadable and was moved to {place}."


def _is_readable(layout: Layout, run_id: str) -> bool:
    try:
        read_records(layout.output, only=run_id)
    except StorageError:
        return False
    return True


def _set_aside(layout: Layout, paths: list[str]) -> str:
    """Move files and folders to a new folder in the output; return its path."""
    place = os.path.join(layout.output, time.strftime("set-aside-%Y%m%d-%H%M%S"))
    number = 1
    while os.path.exists(folder := place if number == 1 else f"{place}-{number}"):
        number += 1
    try:
        os.makedirs(folder)
        for path in filter(os.path.lexists, paths):
            os.rename(path, os.path.join(folder, os.path.basename(path)))
    except OSError as error:
        raise StorageError(f"Cannot move {paths[0]} to {folder}: {error.strerror}.") from error
    return folder
