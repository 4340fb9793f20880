"""Runs the steps of a pipeline in this process, and returns the result of each.

TFX's LocalDagRunner launches them the same way, but does not report the current step, its time,
cache hits and outputs.
"""

import contextlib
import functools
import io
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import create_runner
from google.protobuf import text_format
from google.protobuf.message import Message
from ml_metadata.errors import StatusError
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import cache_utils, launcher, runtime_parameter_utils
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import pipeline_pb2

from components.contract.errors import ConfigurationError
from components.host.machine import trim_memory
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import explain_inconsistency
from pipeline_def.runs.record import Step, StepOutput, Steps, describe_failure, now

# Properties that ML Metadata or TFX sets on every artifact.
_NOISE = frozenset({"is_external", "tfx_version", "__is_null__", "payload_format", "file_format"})
# Longer texts are curves or matrices, of megabytes with many classes.
_LONGEST_PROPERTY = 1_000


def list_steps(pipeline: Pipeline, run_id: str) -> Steps:
    """Yield the name of each step, in topological order, and the function that runs it."""
    compiled = compiler.Compiler().compile(pipeline)
    _check_beam(pipeline.beam_pipeline_args)
    layout = Layout(os.path.dirname(pipeline.pipeline_info.pipeline_root))
    # TFX raises a RuntimeError for a failed connection.
    with (
        _explaining(layout, StatusError, RuntimeError),
        metadata.Metadata(pipeline.metadata_connection_config),
    ):
        pass
    runtime_parameter_utils.substitute_runtime_parameter(
        compiled, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
    )
    for node in compiled.nodes:
        name = node.pipeline_node.node_info.id
        yield name, functools.partial(_run_step, compiled, node.pipeline_node)


_get_cache_context = cache_utils.get_cache_context


def _get_portable_context(
    output: str,
    *,
    input_artifacts: Mapping[str, Sequence[types.Artifact]],
    parameters: Mapping[str, Any],
    **others: Any,
) -> metadata_store_pb2.Context:
    """Do as TFX's function, with a cache key that stays the same when the output is moved."""
    facts = {key: str(value) for key, value in parameters.items()}
    for key, artifacts in input_artifacts.items():
        texts = (text_format.MessageToString(a.mlmd_artifact, as_utf8=True) for a in artifacts)
        facts[f"input {key}"] = "".join(texts)
    for place in (output, json.dumps(output)[1:-1]):
        # Not in the path of a neighbour whose name begins like that of the output.
        pattern = re.compile(re.escape(place) + r'(?=[/"\\]|$)')
        facts = {key: pattern.sub("{output}", fact) for key, fact in facts.items()}
    return _get_cache_context(input_artifacts={}, parameters=facts, **others)


def _run_step(pipeline: pipeline_pb2.Pipeline, node: pipeline_pb2.PipelineNode) -> Step:
    """Launch one step, as LocalDagRunner does, and read its result from ML Metadata.

    Raises:
        Exception: any error of the step.
    """
    name = node.node_info.id
    deployment = runner_utils.extract_local_deployment_config(pipeline)
    store = deployment.metadata_connection_config
    connection = getattr(store, store.WhichOneof("connection_config"))
    output = os.path.dirname(pipeline.runtime_spec.pipeline_root.field_value.string_value)
    layout = Layout(output)
    cache_utils.get_cache_context = functools.partial(_get_portable_context, output)
    driver = runner_utils.extract_custom_driver_spec(deployment, name)
    started, began = now(), time.monotonic()
    step = launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=metadata.Metadata(connection),
        pipeline_info=pipeline.pipeline_info,
        pipeline_runtime_spec=pipeline.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, name),
        custom_driver_spec=driver,
    )
    with _explaining(layout, StatusError):
        info = step.launch()
    trim_memory()
    seconds = time.monotonic() - began
    with metadata.Metadata(connection) as handle:
        [execution] = handle.store.get_executions_by_id([info.execution_id])
        if not execution_lib.is_execution_successful(execution):
            raise explain_inconsistency(layout, f"it lacks the inputs of {name}")
        outputs = execution_lib.get_output_artifacts(handle, info.execution_id)
    cached = execution.last_known_state == metadata_store_pb2.Execution.CACHED
    return Step(
        "cached" if cached else "done",
        started=started,
        seconds=round(seconds, 3),
        inputs={key: [artifact.uri for artifact in used] for key, used in info.input_dict.items()},
        outputs={key: describe_output(artifacts[0]) for key, artifacts in outputs.items()},
        properties=dict(info.exec_properties) if driver else {},
    )


def _check_beam(arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for options that Beam refuses.

    Few images do without Beam until the Evaluator, so that a training would be in vain.
    """
    # Beam parses its options with argparse, which prints what is wrong and exits.
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            options = PipelineOptions([*arguments])
            options.get_all_options()
            create_runner(options.view_as(StandardOptions).runner or "DirectRunner")
    except (SystemExit, ValueError, ImportError, AttributeError) as error:
        reason = printed.getvalue().strip().rpartition("error: ")[2] or str(error)
        raise ConfigurationError(f"beam_pipeline_args: {reason.rstrip('.')}.") from error


@contextlib.contextmanager
def _explaining(layout: Layout, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of ML Metadata into `StorageError`."""
    try:
        yield
    except kinds as error:
        raise explain_inconsistency(layout, describe_failure(error)) from error


def describe_output(artifact: types.Artifact) -> StepOutput:
    """Return an artifact as described in the record of a run."""
    message = artifact.mlmd_artifact
    properties = {**_read(message.properties), **_read(message.custom_properties)}
    return StepOutput(artifact.uri, artifact.type_name, properties)


def _read(properties: Mapping[str, Message]) -> dict[str, Any]:
    values = {name: getattr(v, v.WhichOneof("value") or "", None) for name, v in properties.items()}
    return {
        name: value
        for name, value in sorted(values.items())
        if name not in _NOISE
        and isinstance(value, int | float | str)
        and len(str(value)) <= _LONGEST_PROPERTY
    }
