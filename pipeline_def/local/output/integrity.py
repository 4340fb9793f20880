"""Keeps ML Metadata true to the output folder: its place, and which results are complete.

TFX's cache checks only that the folder of an artifact exists. Its store is read and changed as the
SQLite file that it is, which takes no import of TFX.
"""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from components.contract.artifact_files import on_disk
from components.contract.model_files import PUSHED_CARD, PUSHED_FORMATS
from components.storage.saved_model import GRAPH
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import explain_inconsistency
from pipeline_def.runs.record import Step, describe_failure
from pipeline_def.steps import ANOMALY_GATE

_Content = Mapping[str, list[int]]
"""Path below the artifact's folder, or "" if it is a file → bytes, time of the last change in
nanoseconds and, for a small file, CRC-32."""

# To read all shards and weights before every run would take too long.
_LARGEST_READ = 2**20

# `Artifact.State` and `Execution.State` of ML Metadata's `metadata_store.proto`.
_LIVE, _DELETED = 2, 4
_RUNNING, _FAILED = 2, 4

# The log of a training that the next run resumes.
_LOGS = "model_run"
# Pusher's property with the folder of the pushed model.
_DESTINATION = "pushed_destination"

# The folder of an artifact; that of a number or a text is a file in it.
_URI = re.compile(r"(.+)/artifacts/[^/]+/[^/]+/\d+(/value)?")


_FIND_RUNNING = "SELECT id FROM Execution WHERE last_known_state = ?"


class _Artifact(NamedTuple):
    """A row of ML Metadata."""

    number: int
    uri: str
    pushed: str | None
    """Folder of the pushed model, of Pusher's output."""


@contextlib.contextmanager
def _opened(layout: Layout) -> Iterator[sqlite3.Connection | None]:
    """Open ML Metadata's file, and commit what the context changes; None without its tables.

    Raises:
        StorageError: the file cannot be used.
    """
    if not os.path.exists(layout.metadata):
        yield None
        return
    try:
        with contextlib.closing(sqlite3.connect(layout.metadata)) as store, store:
            # A kill may have left a file without tables, which ML Metadata fills.
            has_table = store.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'Artifact'"
            ).fetchone()
            yield store if has_table else None
    except sqlite3.Error as error:
        raise explain_inconsistency(layout, describe_failure(error)) from error


def adopt_moved(layout: Layout) -> list[str]:
    """Correct the paths of artifacts in ML Metadata if the output folder was moved or copied.

    TFX's own interface would also change their times, which are part of cache keys.

    Returns:
        The former output folders.
    """
    with _opened(layout) as store:
        if not store:
            return []
        uris = [uri for [uri] in store.execute("SELECT uri FROM Artifact")]
        formers = {match[1] for match in map(_URI.fullmatch, uris) if match} - {layout.output}
        for former in formers:
            for table, column in (("Artifact", "uri"), ("ArtifactProperty", "string_value")):
                store.execute(
                    f"UPDATE {table} SET {column} = ?1 || substr({column}, length(?2) + 1) "
                    f"WHERE substr({column}, 1, length(?2) + 1) = ?2 || '/'",
                    (layout.output, former),
                )
    return sorted(formers)


def note_files(layout: Layout, step: Step) -> None:
    """Note the files that a step wrote, for later runs."""
    uris = [output.uri for output in step.outputs.values()]
    # Pusher itself records the other files of a pushed model.
    pushed = [output.properties.get(_DESTINATION) for output in step.outputs.values()]
    _note(layout, [*uris, *(os.path.join(folder, PUSHED_FORMATS) for folder in pushed if folder)])


def _note(layout: Layout, uris: Iterable[str]) -> None:
    """Append a note for each artifact on disk."""
    notes = [
        {"artifact": os.path.relpath(uri, layout.artifacts), "content": _describe(uri)}
        for uri in uris
        if on_disk(uri)
    ]
    if notes:
        os.makedirs(os.path.dirname(layout.files), exist_ok=True)
        with open(layout.files, "a", encoding="utf-8") as file:
            # On a new line, as a kill may have truncated the last one.
            file.writelines(f"\n{json.dumps(note)}\n" for note in notes)


def drop_incomplete(layout: Layout, damaged: Collection[str] = ()) -> list[str]:
    """Mark incomplete artifacts as deleted in ML Metadata, and killed executions as failed.

    Args:
        layout: of the output.
        damaged: folders of pushed models that must be pushed again.

    Returns:
        The folders of the incomplete artifacts, sorted.
    """
    noted = dict(_read_notes(layout))
    with _opened(layout) as store:
        if not store:
            return []
        artifacts = _list_live(store)
        lost = [a for a in artifacts if not _is_complete(layout, a, noted, damaged)]
        # A later push of the same model has replaced the formats and the card of its version.
        newest = {artifact.pushed: artifact.number for artifact in artifacts}
        replaced = [a for a in artifacts if a.pushed and a.number != newest[a.pushed]]
        rows = [(_DELETED, artifact.number) for artifact in (*lost, *replaced)]
        store.executemany("UPDATE Artifact SET state = ? WHERE id = ?", rows)
        kept = frozenset(artifact.uri for artifact in artifacts)
        for [number] in store.execute(_FIND_RUNNING, (_RUNNING,)).fetchall():
            store.execute(
                "UPDATE Execution SET last_known_state = ? WHERE id = ?", (_FAILED, number)
            )
            _remove_unfinished(layout, number, kept=kept)
    gone = {artifact.uri for artifact in lost}
    # A run may have been killed after a step ended and before its files were noted.
    fresh = [artifact.uri for artifact in artifacts if artifact.uri not in gone | noted.keys()]
    _note(layout, fresh)
    return sorted(gone)


def list_complete(layout: Layout) -> set[str]:
    """Return the URIs of all artifacts; nothing if a run must first put the output right."""
    noted = dict(_read_notes(layout))
    with _opened(layout) as store:
        if not store or store.execute(_FIND_RUNNING, (_RUNNING,)).fetchone():
            return set()
        artifacts = _list_live(store)
    uris = {artifact.uri for artifact in artifacts}
    is_known = all(uri in noted for uri in uris if on_disk(uri))
    is_right = is_known and all(_is_complete(layout, artifact, noted, ()) for artifact in artifacts)
    return uris if is_right else set()


def _list_live(store: sqlite3.Connection) -> list[_Artifact]:
    rows = store.execute(
        "SELECT id, uri, string_value FROM Artifact LEFT JOIN ArtifactProperty "
        "ON artifact_id = id AND ArtifactProperty.name = ? WHERE state = ? ORDER BY id",
        (_DESTINATION, _LIVE),
    )
    return [_Artifact._make(row) for row in rows]


def _remove_unfinished(layout: Layout, execution: int, *, kept: frozenset[str]) -> None:
    """Remove what a killed step has written; nothing else would."""
    for folder in Path(layout.artifacts).glob(f"[!.]*/*/{execution}"):
        # The artifact of a number or a text is a file in the folder.
        is_kept = not kept.isdisjoint((str(folder), str(folder / "value")))
        if not is_kept and folder.parent.name != _LOGS:
            shutil.rmtree(folder, ignore_errors=True)


def _is_complete(
    layout: Layout, artifact: _Artifact, noted: Mapping[str, _Content], damaged: Collection[str]
) -> bool:
    if not on_disk(artifact.uri):
        # Requests for every file would cost more than a step that fails.
        return True
    if not os.path.exists(artifact.uri):
        return False
    is_gate = artifact.uri.startswith(f"{layout.artifacts}/{ANOMALY_GATE.id}/")
    # The gate keeps the statistics that later runs are compared with.
    if is_gate and not any(Path(layout.statistics).glob("*")):
        return False
    places = [artifact.uri]
    if artifact.pushed is not None:
        # Users complete the card, so its content may differ.
        names = (GRAPH, PUSHED_CARD)
        is_there = all(os.path.exists(os.path.join(artifact.pushed, name)) for name in names)
        if artifact.pushed in damaged or not is_there:
            return False
        places.append(os.path.join(artifact.pushed, PUSHED_FORMATS))
    return all(
        _is_as_noted(str(Path(place, name)), content)
        for place in places
        for name, content in noted.get(place, {}).items()
    )


def _describe(place: str) -> _Content:
    """Describe the files of an artifact: those in its folder, or the file that it is."""
    if os.path.isfile(place):
        return {"": _describe_file(place)}
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(place) for name in names)
    return {
        os.path.relpath(path, place): _describe_file(path) for path in paths if os.path.isfile(path)
    }


def _describe_file(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, *_checksum(path, status.st_size)]


def _checksum(path: str, size: int) -> list[int]:
    """Return the CRC-32 of a small file; nothing for a large one."""
    return [] if size > _LARGEST_READ else [zlib.crc32(Path(path).read_bytes())]


def _is_as_noted(path: str, content: list[int]) -> bool:
    """Compare sizes and, of a file that was written since or copied, the checksums."""
    size, time, *checksum = content
    try:
        status = os.stat(path)
        if status.st_size != size:
            return False
        return status.st_mtime_ns == time or _checksum(path, size) == checksum
    except OSError:
        return False


def _read_notes(layout: Layout) -> Iterator[tuple[str, _Content]]:
    """Yield the notes as URI and files, newest last, and skip truncated ones."""
    if not os.path.exists(layout.files):
        return
    with open(layout.files, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                note = json.loads(line)
                # Files of a pushed model lie outside of the artifacts.
                place = os.path.normpath(os.path.join(layout.artifacts, note["artifact"]))
                yield place, dict(note["content"])
            except (ValueError, TypeError, LookupError):
                continue
