"""Which results of earlier steps are still whole; the others are made again, not taken as cached.

TFX's cache looks at no more than whether the folder of an artifact is there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ml_metadata.proto.metadata_store_pb2 import Artifact, Execution
from tfx.orchestration import metadata

from components.storage.artifact_files import on_disk
from components.storage.saved_model import GRAPH
from pipeline_def.layout import Layout
from pipeline_def.runs.record import Step

_Files = Mapping[str, int]
"""Path below the artifact's folder → bytes."""

# The log of the first part of a training, which the next run goes on with.
_LOGS = "model_run"


def note_files(layout: Layout, step: Step) -> None:
    """Note which files a step has left, for later runs."""
    _note(layout, [output.uri for output in step.outputs.values()])


def _note(layout: Layout, uris: Sequence[str]) -> None:
    if not on_disk(layout.output) or not uris:
        return
    os.makedirs(os.path.dirname(layout.files), exist_ok=True)
    with open(layout.files, "a", encoding="utf-8") as file:
        for uri in uris:
            note = {"uri": uri, "files": _list_files(uri)}
            # After a line of its own, as a kill may have cut the last one short.
            file.write(f"\n{json.dumps(note)}\n")


def drop_lost(layout: Layout) -> list[str]:
    """Take from ML Metadata what is not whole any more, and what was running when it was killed.

    Returns:
        The folders of what is lost, sorted.
    """
    if not os.path.exists(layout.metadata):
        return []
    noted = dict(_read_notes(layout.files))
    config = metadata.sqlite_metadata_connection_config(layout.metadata)
    with metadata.Metadata(config) as handle:
        artifacts = [a for a in handle.store.get_artifacts() if a.state == Artifact.LIVE]
        lost = [artifact for artifact in artifacts if not _is_whole(artifact, noted)]
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
            _remove_halves(layout, execution.id, kept=uris)
        handle.store.put_artifacts(lost)
        handle.store.put_executions(running)
    gone = {artifact.uri for artifact in lost}
    # Of a run that was killed when a step was done and its files were not noted yet.
    _note(layout, [a.uri for a in artifacts if a.uri not in gone | noted.keys()])
    return sorted(gone)


def _remove_halves(layout: Layout, execution: int, *, kept: frozenset[str]) -> None:
    """Remove what a step had written when it was killed: nothing else would ever do so."""
    for folder in Path(layout.artifacts).glob(f"[!.]*/*/{execution}"):
        # The artifact of a number or a text is the file in its folder.
        is_kept = not kept.isdisjoint((str(folder), str(folder / "value")))
        if not is_kept and folder.parent.name != _LOGS:
            shutil.rmtree(folder, ignore_errors=True)


def _is_whole(artifact: Artifact, noted: Mapping[str, _Files]) -> bool:
    if not on_disk(artifact.uri):
        # A request for each file would cost more than a step that fails for one.
        return True
    if not os.path.exists(artifact.uri):
        return False
    known = artifact.custom_properties
    if "pushed_destination" in known:
        destination = known["pushed_destination"].string_value
        if not os.path.exists(os.path.join(destination, GRAPH)):
            return False
    found = _list_files(artifact.uri)
    return all(found.get(name) == size for name, size in noted.get(artifact.uri, {}).items())


def _list_files(folder: str) -> dict[str, int]:
    return {
        os.path.relpath(path, folder): os.path.getsize(path)
        for parent, _, names in os.walk(folder)
        for path in (os.path.join(parent, name) for name in names)
        if os.path.isfile(path)
    }


def _read_notes(path: str) -> Iterator[tuple[str, _Files]]:
    """Yield the notes, the newest last; one that a kill has cut short is none."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                note = json.loads(line)
                yield note["uri"], dict(note["files"])
            except (ValueError, TypeError, LookupError):
                continue
