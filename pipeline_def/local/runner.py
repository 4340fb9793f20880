"""Runs the nodes of a pipeline one after the other in this process, and says how each went.

TFX's LocalDagRunner does the same, but tells nobody which node runs, how long it took, whether it
came from the cache, and what it wrote.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.orchestration import metadata
from tfx.orchestration.local import local_dag_runner, runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import launcher, runtime_parameter_utils
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import pipeline_pb2


class Observer(Protocol):
    """What wants to know how a run goes on."""

    def node_started(self, name: str) -> None:
        """Node `name` begins."""

    def node_finished(self, name: str, seconds: float, *, cached: bool) -> None:
        """Node `name` is done, or its earlier result was taken."""


@dataclass(frozen=True)
class NodeRun:
    """How one node went."""

    seconds: float
    cached: bool
    outputs: Mapping[str, types.Artifact]
    """Output name → its only artifact."""


class LocalRunner(local_dag_runner.LocalDagRunner):
    """LocalDagRunner that reports to an observer and keeps what the nodes wrote."""

    def __init__(self, observer: Observer, *, last: str | None = None) -> None:
        """Report to `observer`; stop after the node `last`, if one is named."""
        super().__init__()
        self._observer = observer
        self._last = last
        self.nodes: dict[str, NodeRun] = {}

    def run_with_ir(
        self, pipeline: pipeline_pb2.Pipeline, run_options: Any = None, **kwargs: Any
    ) -> None:
        """Run every node of the compiled pipeline, which is in topological order."""
        run_id = time.strftime("%Y-%m-%dT%H:%M:%S") + f".{time.time_ns() % 10**9:09d}"
        runtime_parameter_utils.substitute_runtime_parameter(
            pipeline, {local_dag_runner.constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
        )
        for node in pipeline.nodes:
            name = node.pipeline_node.node_info.id
            self._observer.node_started(name)
            self.nodes[name] = _run_node(pipeline, node.pipeline_node)
            done = self.nodes[name]
            self._observer.node_finished(name, done.seconds, cached=done.cached)
            if name == self._last:
                return


def run_pipeline(
    pipeline: Pipeline, observer: Observer, *, last: str | None = None
) -> dict[str, NodeRun]:
    """Run `pipeline`; return its nodes in the order they ran.

    Args:
        pipeline: to run.
        observer: is told of every node.
        last: node after which to stop; unset: run all.

    Raises:
        Exception: whatever the node that failed raised.
    """
    runner = LocalRunner(observer, last=last)
    runner.run(pipeline)
    return runner.nodes


def _run_node(pipeline: pipeline_pb2.Pipeline, node: pipeline_pb2.PipelineNode) -> NodeRun:
    """Launch one node, as LocalDagRunner does, and ask ML Metadata what became of it."""
    name = node.node_info.id
    deployment = runner_utils.extract_local_deployment_config(pipeline)
    store = deployment.metadata_connection_config
    connection = getattr(store, store.WhichOneof("connection_config"))
    started = time.monotonic()
    info = launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=metadata.Metadata(connection),
        pipeline_info=pipeline.pipeline_info,
        pipeline_runtime_spec=pipeline.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, name),
        custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
    ).launch()
    seconds = time.monotonic() - started
    with metadata.Metadata(connection) as handle:
        [execution] = handle.store.get_executions_by_id([info.execution_id])
        if not execution_lib.is_execution_successful(execution):
            raise RuntimeError(f"{name} did not run: its inputs could not be resolved")
        outputs = execution_lib.get_output_artifacts(handle, info.execution_id)
    cached = execution.last_known_state == metadata_store_pb2.Execution.CACHED
    return NodeRun(seconds, cached, {key: artifacts[0] for key, artifacts in outputs.items()})
