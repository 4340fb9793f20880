"""Checks of an output folder before a run, quickly and without TFX: lock, places, metadata."""

import contextlib
import glob
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path

from components.contract.artifact_files import find_runner
from components.contract.errors import ConfigurationError, StorageError
from components.contract.printable import make_printable
from components.host.lock import locked
from components.host.machine import explaining_full_disk
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.steps import STEPS

# SQLite takes paths of 512 bytes, including that of its journal (`MAX_PATHNAME` in os_unix.c).
_LONGEST_PATH = 504

# The table in which ML Metadata stores its version.
_OURS = "MLMDEnv"

# The folder of a step, and below it those of its outputs and of TFX itself. Outputs have no dot in
# their names, unlike files that other programs leave.
_BELOW_STEPS = ("", "/[!.]*[!.]", "/.system", "/.system/*")


def check_runner(config: Config) -> None:
    """Raise `ConfigurationError` for Dataflow, whose workers cannot see folders of this machine.

    Output in a bucket does not help: steps write to a working copy first.
    """
    if "dataflow" in find_runner(config.beam_pipeline_args):
        raise ConfigurationError(
            "beam_pipeline_args names Dataflow, whose workers cannot see the folders of this "
            "machine: run the pipeline on Kubeflow or Vertex AI with kfp_runner.py and "
            "kubeflow.pipeline_root on gs://, or use Flink with a shared folder."
        )


def check_writable(folder: str) -> None:
    """Raise `StorageError` unless the output folder is writable."""
    if (size := len(os.fsencode(Layout(folder).metadata))) > _LONGEST_PATH:
        raise StorageError(
            f"The path of ML Metadata's file in the output folder has {size:,} bytes, but SQLite "
            f"supports at most {_LONGEST_PATH}: choose a shorter path than {folder}."
        )
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise StorageError(
            f"Cannot write to {folder} ({error.strerror}): choose another --output."
        ) from error


@contextlib.contextmanager
def lock_output(layout: Layout) -> Iterator[None]:
    """Lock the output folder within the context; wait for a run that has locked it.

    Raises:
        StorageError: the disk is full.
    """
    lock = locked(layout.lock, f"the output folder {layout.output}", say=_say)
    with lock, explaining_full_disk(layout.output):
        yield


def _say(sentence: str) -> None:
    print(make_printable(sentence), flush=True)


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
        raise explain_inconsistency(layout, problem)


def explain_inconsistency(layout: Layout, problem: str) -> StorageError:
    """Return the error for metadata that cannot be used; intact ones must not be moved away."""
    if any(word in problem for word in ("locked", "busy", "readonly")):
        return StorageError(
            f"{layout.metadata} cannot be written ({problem}): end the program that uses it, or "
            f"make it writable, and run again."
        )
    return StorageError(
        f"{layout.metadata} cannot be used: {problem}. Move it away, and run again: the next run "
        f"starts over; pushed models stay."
    )


def find_problem(path: str) -> str:
    """Return what is wrong with ML Metadata's file; "" if it is fine or does not exist."""
    if not os.path.lexists(path):
        return ""
    if not os.path.isfile(path):
        return "it is not a regular file"
    uri = Path(path).absolute().as_uri()
    try:
        # Opened for writing, as a kill may have left a transaction to roll back.
        with contextlib.closing(sqlite3.connect(f"{uri}?mode=rw", uri=True)) as store:
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
            select = f'SELECT 1 FROM "{table}" WHERE'
            if "INT" in kind and store.execute(f"{select} typeof({column}) = 'text'").fetchone():
                yield f"{table}.{column} holds text"
            parent = column.removeprefix("parent_").removesuffix("_id").capitalize()
            rows = f"{select} {column} NOT IN (SELECT id FROM {parent})"
            if column.endswith("_id") and parent in tables and store.execute(rows).fetchone():
                yield f"{table} refers to rows of {parent} that are missing"


def set_leftovers_aside(layout: Layout) -> str:
    """Move away results without metadata; return a message, or "" if there are none.

    A new ML Metadata numbers results from 1 again, so they would mix with those of the next run.
    """
    places = (layout.artifacts, layout.checkpoints)
    found = [place for place in places if os.path.isdir(place) and any(os.scandir(place))]
    if os.path.exists(layout.metadata) or not found:
        return ""
    folder = os.path.join(layout.output, time.strftime("set-aside-%Y%m%d-%H%M%S"))
    for place in found:
        try:
            os.makedirs(folder, exist_ok=True)
            os.rename(place, os.path.join(folder, os.path.basename(place)))
        except OSError as error:
            raise StorageError(f"Cannot move {place} to {folder}: {error.strerror}.") from error
    names = " and ".join(map(os.path.basename, found))
    return f"{names} in {layout.output} had no metadata; they were moved to {folder}."
