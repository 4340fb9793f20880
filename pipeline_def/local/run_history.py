"""The runs of an output folder as ML Metadata remembers them, and how each differs from before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from ml_metadata.proto import metadata_store_pb2 as mlmd

from pipeline_def.local.run_settings import name_settings
from pipeline_def.local.run_store import (
    STATES,
    NodeName,
    name_nodes,
    open_store,
    read_members,
    read_outputs,
    read_properties,
)

IMAGES = "images"
"""The name of the change when the files are others."""

_EXAMPLES, _METRICS, _BLESSING = "Examples", "system.Metrics", "ModelBlessing"
_EVALUATION, _PUSHED = "ModelEvaluation", "PushedModel"
_TYPES = (_EXAMPLES, _METRICS, _BLESSING, _EVALUATION, _PUSHED)


@dataclass(frozen=True)
class Change:
    """A setting that is another than when its node ran last; None where there was or is none."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Data:
    """The images of a run."""

    folder: str
    fingerprint: str
    """Of the listing of the folder; "" where ingest did not get that far."""
    span: int | None
    version: int | None


@dataclass(frozen=True)
class Run:
    """One run of a pipeline."""

    name: str
    """Its id in ML Metadata."""
    pipeline: str
    started: str
    """ISO 8601, UTC."""
    state: Literal["done", "failed", "unfinished"]
    """unfinished: it runs still, was killed, or was not to be pushed, as a run of `schema`."""
    node: str
    """The last one that began: where it failed or did not finish."""
    seconds: float | None
    """From the first node to the end of the last; None for an unfinished run."""
    nodes: Mapping[str, str]
    """Node → done, cached, failed or unfinished, in the order in which they ran."""
    data: Data
    settings: Mapping[str, Any]
    """The configuration of the nodes that began, such as `training.epochs`."""
    changes: tuple[Change, ...]
    metrics: Mapping[str, float]
    """Over all examples of the split; empty where the run did not get that far."""
    split: str
    """That the metrics are of; "" likewise."""
    accuracy_change: float | None
    """Since the last run that was measured on the same images and split."""
    blessed: bool | None
    pushed: str | None
    """Version; an earlier run has pushed it where `nodes` says that Pusher was cached."""

    @property
    def cached(self) -> int:
        """How many nodes took an earlier result."""
        return sum(state == "cached" for state in self.nodes.values())


def read_runs(output: str) -> list[Run]:
    """Return the runs in the output folder `output`, newest last.

    Raises:
        UserError: there are none, or they cannot be read.
    """
    with open_store(output) as store:
        names = name_nodes(store)
        outputs = read_outputs(store, names, *_TYPES)
        memory = _Memory()
        return [
            _read_run(context, [_read_node(e, names, outputs) for e in executions], memory)
            for context, executions in read_members(store, "pipeline_run")
            if executions
        ]


@dataclass(frozen=True)
class _Node:
    """One execution."""

    pipeline: str
    name: str
    execution: mlmd.Execution
    properties: Mapping[str, Any]
    outputs: Mapping[str, Mapping[str, Any]]
    """Type of an artifact → its properties."""

    @property
    def state(self) -> str:
        return STATES.get(self.execution.last_known_state, "unfinished")


class _Memory:
    """What the runs so far say, for the next one to be compared with."""

    def __init__(self) -> None:
        self._settings: dict[tuple[str, str], dict[str, Any]] = {}
        self._accuracies: dict[tuple[Any, ...], float] = {}

    def compare(self, key: tuple[str, str], settings: dict[str, Any]) -> Iterator[Change]:
        """Yield what is new since the node `key` ran last, whatever became of it."""
        before = self._settings.get(key, settings)
        for name in sorted(before.keys() | settings.keys()):
            old, new = before.get(name), settings.get(name)
            if old != new:
                yield Change(name, old, new)
        self._settings[key] = settings

    def compare_accuracy(self, key: tuple[Any, ...], accuracy: float | None) -> float | None:
        """Return how much higher it is than the last one with the same key, if there is one."""
        if accuracy is None:
            return None
        before = self._accuracies.get(key)
        self._accuracies[key] = accuracy
        return None if before is None else accuracy - before


def _read_node(
    execution: mlmd.Execution,
    names: Mapping[int, NodeName],
    outputs: Mapping[int, Iterable[mlmd.Artifact]],
) -> _Node:
    made = {a.type: read_properties(a) for a in outputs.get(execution.id, ())}
    return _Node(*names[execution.id], execution, read_properties(execution), made)


def _read_run(context: mlmd.Context, nodes: list[_Node], memory: _Memory) -> Run:
    pipeline = nodes[0].pipeline
    settings = {node.name: name_settings(node.name, node.properties) for node in nodes}
    data = _read_data(nodes)
    metrics = {n: v for n, v in _find(nodes, _METRICS).items() if isinstance(v, float)}
    split = str(_find(nodes, _EVALUATION).get("split", ""))
    pushed = _find(nodes, _PUSHED)
    state = _state([node.state for node in nodes], finished=bool(pushed))
    started = nodes[0].execution.create_time_since_epoch
    ended = nodes[-1].execution.last_update_time_since_epoch
    same = (pipeline, data.fingerprint, split, metrics.get("examples"))
    return Run(
        name=context.name,
        pipeline=pipeline,
        started=format_time(started),
        state=state,
        node=nodes[-1].name,
        seconds=None if state == "unfinished" else (ended - started) / 1000,
        nodes={node.name: node.state for node in nodes},
        data=data,
        settings={name: value for found in settings.values() for name, value in found.items()},
        changes=_list_changes(pipeline, settings, data, memory),
        metrics=metrics,
        split=split,
        accuracy_change=memory.compare_accuracy(same, metrics.get("accuracy")),
        blessed=_read_blessed(nodes),
        pushed=str(pushed["pushed_version"]) if pushed.get("pushed") else None,
    )


def _find(nodes: Iterable[_Node], kind: str) -> Mapping[str, Any]:
    """Return the properties of the first artifact of a type."""
    return next((node.outputs[kind] for node in nodes if kind in node.outputs), {})


def _read_data(nodes: list[_Node]) -> Data:
    """Ask the artifact first: a cached execution does not know what its driver found out."""
    of_ingest = next((node.properties for node in nodes if "input_base" in node.properties), {})
    known = {**of_ingest, **_find(nodes, _EXAMPLES)}
    return Data(
        folder=str(known.get("input_base", "")),
        fingerprint=str(known.get("input_fingerprint", "")),
        span=known.get("span"),
        version=known.get("version"),
    )


def _read_blessed(nodes: list[_Node]) -> bool | None:
    # Kubeflow knows but doubles.
    blessed = _find(nodes, _BLESSING).get("blessed")
    return None if blessed is None else bool(blessed)


def _state(states: Iterable[str], *, finished: bool) -> Literal["done", "failed", "unfinished"]:
    """Tell how a run went: `finished` says that its last step, the push, has its output."""
    if "failed" in states:
        return "failed"
    return "done" if finished and "unfinished" not in states else "unfinished"


def _list_changes(
    pipeline: str, settings: Mapping[str, dict[str, Any]], data: Data, memory: _Memory
) -> tuple[Change, ...]:
    """Return the changes of all nodes, each name once: Transform and Trainer share settings."""
    parts = dict(settings)
    if data.fingerprint:
        parts[IMAGES] = {IMAGES: data.fingerprint}
    found = {
        change.name: change
        for node, values in parts.items()
        for change in memory.compare((pipeline, node), values)
    }
    return tuple(found.values())


def format_time(milliseconds: int) -> str:
    """Write a time of ML Metadata as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
