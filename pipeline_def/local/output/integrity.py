"""Keeps ML Metadata true to the output folder: its place, and which results are complete.

TFX's cache checks only that the folder of an artifact exists.
"""

import contextlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ml_metadata.proto.metadata_store_pb2 import Artifact, Execution
from tfx.orchestration import metadata

from components.contract.model_files import PUSHED_LITE
from components.storage.artifact_files import on_disk
from components.storage.saved_model import GRAPH
from pipeline_def.layout import Layout
from pipeline_def.runs.record import Step

_Files = Mapping[str, int]
"""Path below the artifact's folder → bytes."""

# The log of a training that the next run resumes.
_LOGS = "model_run"
# Pusher's property with the folder of the pushed model.
_DESTINATION = "pushed_destination"

# The folder of an artifact; that of a number or a text is a file in it.
_URI = re.compile(r"(.+)/artifacts/[^/]+/[^/]+/\d+(/value)?")


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
        found = {match[1] for match in map(_URI.fullmatch, uris) if match} - {layout.output}
        for former in found:
            for table, column in (("Artifact", "uri"), ("ArtifactProperty", "string_value")):
                store.execute(
                    f"UPDATE {table} SET {column} = ?1 || substr({column}, length(?2) + 1) "
                    f"WHERE substr({column}, 1, length(?2) + 1) = ?2 || '/'",
                    (layout.output, former),
                )
    return sorted(found)


def note_files(layout: Layout, step: Step) -> None:
    """Note the files that a step wrote, for later runs."""
    uris = [output.uri for output in step.outputs.values()]
    # Pusher itself records the other files of a pushed model.
    pushed = (output.properties.get(_DESTINATION) for output in step.outputs.values())
    uris += [os.path.join(folder, PUSHED_LITE) for folder in pushed if folder]
    _note(layout, [uri for uri in uris if on_disk(uri)])


def _note(layout: Layout, uris: Sequence[str]) -> None:
    if not uris:
        return
    os.makedirs(os.path.dirname(layout.files), exist_ok=True)
    with open(layout.files, "a", encoding="utf-8") as file:
        for uri in uris:
            place = os.path.relpath(uri, layout.artifacts)
            note = {"artifact": place, "files": _list_files(uri)}
            # On a new line, as a kill may have truncated the last one.
            file.write(f"\n{json.dumps(note)}\n")


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
        lost = [one for one in artifacts if not _is_complete(one, noted, damaged)]
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
    _note(layout, [a.uri for a in artifacts if a.uri not in gone | noted.keys()])
    return sorted(gone)


def _remove_unfinished(layout: Layout, execution: int, *, kept: frozenset[str]) -> None:
    """Remove what a killed step has written; nothing else would."""
    for folder in Path(layout.artifacts).glob(f"[!.]*/*/{execution}"):
        # The artifact of a number or a text is a file in the folder.
        is_kept = not kept.isdisjoint((str(folder), str(folder / "value")))
        if not is_kept and folder.parent.name != _LOGS:
            shutil.rmtree(folder, ignore_errors=True)


def _is_complete(artifact: Artifact, noted: Mapping[str, _Files], damaged: Collection[str]) -> bool:
    if not on_disk(artifact.uri):
        # Requests for every file would cost more than a step that fails.
        return True
    if not os.path.exists(artifact.uri):
        return False
    folders = [artifact.uri]
    if _DESTINATION in artifact.custom_properties:
        destination = artifact.custom_properties[_DESTINATION].string_value
        if destination in damaged or not os.path.exists(os.path.join(destination, GRAPH)):
            return False
        folders.append(os.path.join(destination, PUSHED_LITE))
    return all(noted.get(folder, {}).items() <= _list_files(folder).items() for folder in folders)


def _list_files(folder: str) -> dict[str, int]:
    return {
        os.path.relpath(path, folder): os.path.getsize(path)
        for parent, _, names in os.walk(folder)
        for path in (os.path.join(parent, name) for name in names)
        if os.path.isfile(path)
    }


def _read_notes(layout: Layout) -> Iterator[tuple[str, _Files]]:
    """Yield the notes as URI and files, newest last, and skip truncated ones."""
    if not os.path.exists(layout.files):
        return
    with open(layout.files, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                note = json.loads(line)
                # Files of a pushed model lie outside of the artifacts.
                place = os.path.normpath(os.path.join(layout.artifacts, note["artifact"]))
                yield place, dict(note["files"])
            except (ValueError, TypeError, LookupError):
                continue
