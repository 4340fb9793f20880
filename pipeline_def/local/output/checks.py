"""Checks of an output folder before a run, quickly and without TFX: lock, metadata."""

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from components.contract.artifact_files import find_runner
from components.contract.errors import ConfigurationError, StorageError
from components.contract.printable import make_printable
from components.host.lock import locked
from components.host.machine import explaining_full_disk
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout

# The table in which ML Metadata stores its version.
_OURS = "MLMDEnv"


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
    lock = locked(
        layout.lock,
        f"the output folder {layout.output}",
        say=lambda sentence: print(make_printable(sentence), flush=True),
    )
    with lock, explaining_full_disk(layout.output):
        yield


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
    except (sqlite3.Error, ValueError) as error:
        return str(error)
    return "" if verdict == "ok" else " ".join(str(verdict).split())


def set_leftovers_aside(layout: Layout) -> str:
    """Move away results without metadata; return a message, or "" if there are none.

    A new ML Metadata numbers results from 1 again, so they would mix with those of the next run.
    """
    places = (layout.artifacts, layout.checkpoints)
    existing = [place for place in places if os.path.isdir(place) and any(os.scandir(place))]
    if os.path.exists(layout.metadata) or not existing:
        return ""
    folder = os.path.join(layout.output, time.strftime("set-aside-%Y%m%d-%H%M%S"))
    for place in existing:
        try:
            os.makedirs(folder, exist_ok=True)
            os.rename(place, os.path.join(folder, os.path.basename(place)))
        except OSError as error:
            raise StorageError(f"Cannot move {place} to {folder}: {error.strerror}.") from error
    names = " and ".join(map(os.path.basename, existing))
    return f"{names} in {layout.output} had no metadata; they were moved to {folder}."
