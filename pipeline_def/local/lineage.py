"""Where a pushed model comes from: back through ML Metadata's events to its images."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from components.contract.errors import UserError
from components.contract.example import INDEX_FILE
from components.records.shard_files import count_examples
from pipeline_def.local.run_history import format_time
from pipeline_def.local.run_settings import name_settings
from pipeline_def.local.run_store import (
    INPUTS,
    OUTPUTS,
    NodeName,
    find_seconds,
    name_nodes,
    open_store,
    read_members,
    read_properties,
)

_PUSHED, _MODEL, _METRICS = "PushedModel", "Model", "system.Metrics"


@dataclass(frozen=True)
class Item:
    """An artifact."""

    id: int
    type: str
    uri: str
    created: str
    """ISO 8601, UTC."""
    facts: Mapping[str, int | float | str]
    """Its properties, apart from curves and matrices."""
    examples: Mapping[str, int]
    """Split → examples, where its folder has an index of shards."""


@dataclass(frozen=True)
class Step:
    """The execution of a node that made artifacts of other ones."""

    id: int
    node: str
    run: str
    started: str
    """ISO 8601, UTC."""
    seconds: float | None
    settings: Mapping[str, Any]
    """Such as `training.epochs`."""
    inputs: Mapping[str, tuple[int, ...]]
    """Name of the input → ids of artifacts."""
    outputs: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Lineage:
    """A pushed model, and everything that it was made of."""

    version: str
    destination: str
    """Folder, a path or a URL."""
    pushed: int
    """Id of its artifact."""
    items: Mapping[int, Item]
    steps: tuple[Step, ...]
    """The push first, then what it used, and so on; then who else measured the model."""

    def maker(self, item: int) -> Step | None:
        """Return the step that made an artifact; None where ML Metadata does not know."""
        made = (step for step in self.steps if any(item in ids for ids in step.outputs.values()))
        return next(made, None)


def trace(output: str, wanted: str) -> Lineage:
    """Trace the model that was pushed as `wanted`, a version or its folder.

    Raises:
        UserError: no run in the output folder `output` has pushed it.
    """
    with open_store(output) as store:
        pushed = _find_pushed(store, output, wanted)
        return _Walk(store).trace(pushed)


def _find_pushed(store: metadata_store.MetadataStore, output: str, wanted: str) -> mlmd.Artifact:
    known = {}
    for artifact in sorted(store.get_artifacts_by_type(_PUSHED), key=lambda a: a.id):
        facts = read_properties(artifact)
        if facts.get("pushed"):
            known[str(facts["pushed_version"])] = artifact
            known[str(facts["pushed_destination"]).rstrip("/")] = artifact
    for name in (wanted.rstrip("/"), os.path.abspath(wanted), os.path.realpath(wanted)):
        if name in known:
            return known[name]
    versions = ", ".join(name for name in known if "/" not in name) or "none"
    raise UserError(f"No run in {output} has pushed {wanted}; versions pushed: {versions}.")


class _Walk:
    """Goes from artifacts to the executions that made them, and on to the inputs of those."""

    def __init__(self, store: metadata_store.MetadataStore) -> None:
        self._store = store
        self._names: Mapping[int, NodeName] = name_nodes(store)
        self._runs = {
            execution.id: context.name
            for context, executions in read_members(store, "pipeline_run")
            for execution in executions
        }
        self._steps: dict[int, Step] = {}

    def trace(self, pushed: mlmd.Artifact) -> Lineage:
        self._follow([pushed.id])
        self._add(self._find_measurers(pushed.id))
        facts = read_properties(pushed)
        return Lineage(
            version=str(facts["pushed_version"]),
            destination=str(facts["pushed_destination"]),
            pushed=pushed.id,
            items=self._read_items(),
            steps=tuple(self._steps.values()),
        )

    def _follow(self, artifacts: list[int]) -> None:
        seen: set[int] = set()
        while artifacts:
            seen.update(artifacts)
            events = self._store.get_events_by_artifact_ids(artifacts)
            makers = self._choose(event for event in events if event.type in OUTPUTS)
            inputs = self._add(makers)
            artifacts = sorted(inputs - seen)

    def _choose(self, events: Iterable[mlmd.Event]) -> list[int]:
        """Return the first execution to write each artifact: later ones took it from the cache."""
        first: dict[int, int] = {}
        for event in events:
            known = first.get(event.artifact_id, event.execution_id)
            first[event.artifact_id] = min(known, event.execution_id)
        return sorted(set(first.values()), reverse=True)

    def _add(self, executions: Iterable[int]) -> set[int]:
        """Add executions as steps; return the ids of their inputs."""
        new = [found for found in executions if found not in self._steps]
        inputs: dict[int, dict[str, tuple[int, ...]]] = {found: {} for found in new}
        outputs: dict[int, dict[str, tuple[int, ...]]] = {found: {} for found in new}
        for event in self._store.get_events_by_execution_ids(new) if new else ():
            side = inputs if event.type in INPUTS else outputs
            name = next((step.key for step in event.path.steps if step.key), "")
            ids = side[event.execution_id]
            ids[name] = (*ids.get(name, ()), event.artifact_id)
        found = {e.id: e for e in self._store.get_executions_by_id(new)} if new else {}
        for one in new:
            self._steps[one] = self._make_step(found[one], inputs[one], outputs[one])
        return {artifact for one in new for ids in inputs[one].values() for artifact in ids}

    def _make_step(
        self,
        execution: mlmd.Execution,
        inputs: dict[str, tuple[int, ...]],
        outputs: dict[str, tuple[int, ...]],
    ) -> Step:
        node = self._names[execution.id].node
        return Step(
            id=execution.id,
            node=node,
            run=self._runs.get(execution.id, ""),
            started=format_time(execution.create_time_since_epoch),
            seconds=find_seconds(execution),
            settings=name_settings(node, read_properties(execution)),
            inputs=dict(sorted(inputs.items())),
            outputs=dict(sorted(outputs.items())),
        )

    def _find_measurers(self, pushed: int) -> list[int]:
        """Return the first execution that measured the pushed model, if the push needed none."""
        metrics = {artifact.id for artifact in self._store.get_artifacts_by_type(_METRICS)}
        if any(metrics.intersection(i) for s in self._steps.values() for i in s.outputs.values()):
            return []
        [push] = [step for step in self._steps.values() if (pushed,) in step.outputs.values()]
        used = [artifact for ids in push.inputs.values() for artifact in ids]
        models = [a.id for a in self._store.get_artifacts_by_id(used) if a.type == _MODEL]
        events = self._store.get_events_by_artifact_ids(models) if models else ()
        readers = [event.execution_id for event in events if event.type in INPUTS]
        written = self._store.get_events_by_execution_ids(readers) if readers else ()
        measured = (e for e in written if e.type in OUTPUTS and e.artifact_id in metrics)
        return sorted({event.execution_id for event in measured})[:1]

    def _read_items(self) -> dict[int, Item]:
        steps = self._steps.values()
        ids = {a for s in steps for side in (s.inputs, s.outputs) for i in side.values() for a in i}
        return {a.id: _make_item(a) for a in self._store.get_artifacts_by_id(sorted(ids))}


def _make_item(artifact: mlmd.Artifact) -> Item:
    return Item(
        id=artifact.id,
        type=artifact.type,
        uri=artifact.uri,
        created=format_time(artifact.create_time_since_epoch),
        facts={
            name: value
            for name, value in read_properties(artifact).items()
            if isinstance(value, int | float | str)
        },
        examples=_count(artifact.uri),
    )


def _count(uri: str) -> dict[str, int]:
    """Read the index next to shards, without TensorFlow; it may be deleted by now."""
    try:
        with open(os.path.join(uri, INDEX_FILE), encoding="utf-8") as file:
            return count_examples(json.load(file))
    except OSError:
        return {}
