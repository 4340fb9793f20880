"""The ML Metadata of an output folder, read without TFX and without changing anything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from google.protobuf import json_format
from ml_metadata import errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from components.contract.errors import UserError
from pipeline_def.layout import Layout

OUTPUTS = (mlmd.Event.OUTPUT, mlmd.Event.DECLARED_OUTPUT)
INPUTS = (mlmd.Event.INPUT, mlmd.Event.DECLARED_INPUT)

STATES = {
    mlmd.Execution.COMPLETE: "done",
    mlmd.Execution.CACHED: "cached",
    mlmd.Execution.FAILED: "failed",
    mlmd.Execution.CANCELED: "failed",
}
"""Any other state is that of a step that runs, or of one that was killed."""

# What ML Metadata or TFX notes of every artifact, and says nothing about it.
_NOISE = frozenset({"is_external", "tfx_version", "__is_null__", "payload_format", "file_format"})


@contextlib.contextmanager
def open_store(output: str) -> Iterator[metadata_store.MetadataStore]:
    """Open the store of the output folder `output` for reading.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    path = Layout(output).metadata
    if not os.path.isfile(path):
        raise UserError(
            f"{output} has no runs: there is no {path}. Name the folder of the runs with --output."
        )
    config = mlmd.ConnectionConfig()
    config.sqlite.filename_uri = path
    # Otherwise ML Metadata would make its tables in whatever file it is given.
    config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READONLY
    try:
        yield _connect(config)
    except errors.StatusError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise UserError(f"Cannot read the runs in {path}: {reason}.") from error


def _connect(config: mlmd.ConnectionConfig) -> metadata_store.MetadataStore:
    try:
        return metadata_store.MetadataStore(config)
    except RuntimeError as error:
        path = config.sqlite.filename_uri
        raise UserError(f"{path} holds no runs: it is not the metadata of a pipeline.") from error


def read_properties(item: mlmd.Artifact | mlmd.Execution) -> dict[str, Any]:
    """Return what is noted of an artifact or an execution, in alphabetical order."""
    both = {**item.properties, **item.custom_properties}
    return {name: _plain(both[name]) for name in sorted(both.keys() - _NOISE)}


def _plain(value: mlmd.Value) -> Any:
    found = getattr(value, value.WhichOneof("value"))
    return (
        found if isinstance(found, int | float | str | bool) else json_format.MessageToDict(found)
    )


def read_members(
    store: metadata_store.MetadataStore, kind: str
) -> list[tuple[mlmd.Context, list[mlmd.Execution]]]:
    """Return the contexts of a kind, `pipeline_run` or `node`, with their executions by id."""
    contexts = sorted(store.get_contexts_by_type(kind), key=lambda context: context.id)
    return [
        (context, sorted(store.get_executions_by_context(context.id), key=lambda e: e.id))
        for context in contexts
    ]


class NodeName(NamedTuple):
    """What ran."""

    pipeline: str
    node: str


def name_nodes(store: metadata_store.MetadataStore) -> dict[int, NodeName]:
    """Return the node of each execution, by the execution's id."""
    return {
        execution.id: NodeName(*context.name.rsplit(".", 1))
        for context, executions in read_members(store, "node")
        for execution in executions
    }


def read_outputs(
    store: metadata_store.MetadataStore, executions: Iterable[int], *types: str
) -> dict[int, list[mlmd.Artifact]]:
    """Return the artifacts of these types that each of the executions wrote or took over."""
    # By type, as confusion matrices may be megabytes each.
    known = {a.id: a for kind in types for a in store.get_artifacts_by_type(kind)}
    found: dict[int, list[mlmd.Artifact]] = {}
    for event in store.get_events_by_execution_ids(list(executions)):
        if event.type in OUTPUTS and event.artifact_id in known:
            found.setdefault(event.execution_id, []).append(known[event.artifact_id])
    return found


def find_seconds(execution: mlmd.Execution) -> float | None:
    """Return how long an execution took; None when it has no end."""
    if execution.last_known_state not in STATES:
        return None
    passed: int = execution.last_update_time_since_epoch - execution.create_time_since_epoch
    return passed / 1000
