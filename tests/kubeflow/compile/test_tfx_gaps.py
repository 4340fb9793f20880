"""Gaps between TFX and open-source Kubeflow that our code closes; a test fails when TFX does."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.dsl.components.base.base_node import BaseNode
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as dag_runner
from tfx.orchestration.kubeflow.v2.container import (
    kubeflow_v2_entrypoint_utils,
    kubeflow_v2_run_executor,
)
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts

from components.ingest.component import ImageExampleGen
from components.ingest.config import IngestConfig

Spec = dict[str, Any]
Resources = pipeline_spec_pb2.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec


def compile_with_tfx(*components: BaseNode) -> Spec:
    """Compile with TFX alone; return the whole job."""
    runner = dag_runner.KubeflowV2DagRunner(
        dag_runner.KubeflowV2DagRunnerConfig(default_image="i", use_pipeline_spec_2_1=True)
    )
    job: Spec = runner.run(
        Pipeline("images", pipeline_root="gs://b", components=list(components)), write_out=False
    )
    return job


def executors(job: Spec) -> list[Spec]:
    return list(job["pipelineSpec"]["deploymentSpec"]["executors"].values())


def example_gen() -> ImageExampleGen:
    return ImageExampleGen(
        folder="gs://b/images", config=IngestConfig(), listings="gs://b/listings"
    )


def importer() -> Importer:
    return Importer(source_uri="gs://b/m", artifact_type=standard_artifacts.Model).with_id("Import")


def test_tfx_wraps_the_specification_in_a_job() -> None:
    assert {"pipelineSpec", "runtimeConfig"} <= compile_with_tfx(importer()).keys()


def test_tfx_adds_a_hook_to_example_gen_and_drops_its_resources() -> None:
    job = compile_with_tfx(example_gen().with_platform_config(Resources(cpu_limit=4)))
    [executor] = executors(job)
    assert "preCacheCheck" in executor["container"]["lifecycle"]
    assert "resources" not in executor["container"]


def run_tfx_entrypoint(folder: Path, schema: str) -> None:
    """Run TFX's own entrypoint with `schema` as the type of the input, as KFP's driver gives it."""
    artifact = {"name": "1", "uri": f"{folder}/in", "type": {"instanceSchema": schema}}
    executor_input = {
        "inputs": {"artifacts": {"model": {"artifacts": [artifact]}}},
        "outputs": {"outputFile": f"{folder}/out/output_metadata.json"},
    }
    kubeflow_v2_run_executor.main(
        (
            argparse.Namespace(
                executor_class_path="tests.kubeflow.step.test_entrypoint.Refusing",
                json_serialized_invocation_args=json.dumps(executor_input),
                json_serialized_inputs_spec_args=None,
            ),
            [],
        )
    )


def test_tfx_crashes_on_blank_types(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'get'"):
        run_tfx_entrypoint(tmp_path, "")


@pytest.mark.parametrize("title", ["images.ImageRejects", "system.HTML"])
def test_tfx_imports_the_title_of_a_type(tmp_path: Path, title: str) -> None:
    with pytest.raises(ImportError, match=f"Could not import {title}"):
        run_tfx_entrypoint(tmp_path, f"title: {title}\n")


def test_tfx_writes_null_metadata() -> None:
    examples = standard_artifacts.Examples()
    examples.mlmd_artifact.custom_properties["nothing"].SetInParent()
    made = kubeflow_v2_entrypoint_utils.to_runtime_artifact(examples, {})
    assert made.metadata.fields["nothing"].WhichOneof("kind") == "null_value"
