"""Keeps ML Metadata true to the output folder: its place, and which results are complete.

TFX's cache checks only that the folder of an artifact exists.
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

from ml_metadata.errors import StatusError
from ml_metadata.proto.metadata_store_pb2 import Artifact, Execution
from tfx.orchestration import metadata

from components.contract.artifact_files import on_disk
from components.contract.model_files import PUSHED_FORMATS
from components.storage.saved_model import GRAPH
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import explain_inconsistency
from pipeline_def.runs.record import Step, describe_failure

_Content = Mapping[str, list[int]]
"""Path below the artifact's folder, or "" if it is a file → bytes, time of the last change in
nanoseconds and, for a small file, CRC-32."""

# To read all shards and weights before every run would take too long.
_LARGEST_READ = 2**20

# The log of a training that the next run resumes.
_LOGS = "model_run"
# Pusher's property with the folder of the pushed model.
_DESTINATION = "pushed_destination"

# The folder of an artifact; that of a number or a text is a file in it.
_URI = re.compile(r"(.+)/artifacts/[^/]+/[^/]+/\d+(/value)?")


@contextlib.contextmanager
def explaining_metadata(layout: Layout) -> Iterator[None]:
    """Turn errors of ML Metadata, and TFX's for a failed connection, into a `StorageError`."""
    try:
        yield
    except (StatusError, sqlite3.Error, RuntimeError) as error:
        raise explain_inconsistency(layout, describe_failure(error)) from error


def adopt_moved(layout: Layout) -> list[str]:
    """Correct the paths of artifacts in ML Metadata if the output folder was moved or copied.

    TFX's own interface would also change their times, which are part of cache keys.

    Returns:
        The former output folders.
    """
    if not os.path.exists(layout.metadata):
        return []
    with contextlib.closing(sqlite3.connect(layout.metadata)) as store, store:
        # A kill may have left a file without tables, which ML Metadata fills.
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'Artifact'").fetchone():
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
    if not os.path.exists(layout.metadata):
        return []
    noted = dict(_read_notes(layout))
    config = metadata.sqlite_metadata_connection_config(layout.metadata)
    with metadata.Metadata(config) as handle:
        artifacts = [a for a in handle.store.get_artifacts() if a.state == Artifact.LIVE]
        lost = [candidate for candidate in artifacts if not _is_complete(candidate, noted, damaged)]
        for artifact in lost:
            artifact.state = Artifact.DELETED
        uris = frozenset(artifact.uri for artifact in artifacts)
        running = [
            execution
            for execution in handle.store.get_executions()
            if execution.last_known_state == Execution.RUNNING
        ]
        for execution in running:
            execution.last_known_state = Execution.FAILED
            _remove_unfinished(layout, execution.id, kept=uris)
        handle.store.put_artifacts(lost)
        handle.store.put_executions(running)
    gone = {artifact.uri for artifact in lost}
    # A run may have been killed after a step ended and before its files were noted.
    fresh = [artifact.uri for artifact in artifacts if artifact.uri not in gone | noted.keys()]
    _note(layout, fresh)
    return sorted(gone)


def mark_deleted(layout: Layout, folders: Collection[str]) -> None:
    """Mark the artifacts in `folders` as deleted in ML Metadata, so that no cache finds them."""
    adopt_moved(layout)
    if not os.path.exists(layout.metadata):
        return
    config = metadata.sqlite_metadata_connection_config(layout.metadata)
    gone = {*folders}
    with metadata.Metadata(config) as handle:
        # The artifact of a number or a text is a file in the folder.
        lost = [
            live
            for live in handle.store.get_artifacts()
            if live.state == Artifact.LIVE and {live.uri, os.path.dirname(live.uri)} & gone
        ]
        for artifact in lost:
            artifact.state = Artifact.DELETED
        handle.store.put_artifacts(lost)


def _remove_unfinished(layout: Layout, execution: int, *, kept: frozenset[str]) -> None:
    """Remove what a killed step has written; nothing else would."""
    for folder in Path(layout.artifacts).glob(f"[!.]*/*/{execution}"):
        # The artifact of a number or a text is a file in the folder.
        is_kept = not kept.isdisjoint((str(folder), str(folder / "value")))
        if not is_kept and folder.parent.name != _LOGS:
            shutil.rmtree(folder, ignore_errors=True)


def _is_complete(
    artifact: Artifact, noted: Mapping[str, _Content], damaged: Collection[str]
) -> bool:
    if not on_disk(artifact.uri):
        # Requests for every file would cost more than a step that fails.
        return True
    if not os.path.exists(artifact.uri):
        return False
    places = [artifact.uri]
    if _DESTINATION in artifact.custom_properties:
        destination = artifact.custom_properties[_DESTINATION].string_value
        if destination in damaged or not os.path.exists(os.path.join(destination, GRAPH)):
            return False
        places.append(os.path.join(destination, PUSHED_FORMATS))
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
