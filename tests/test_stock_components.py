"""Our components mixed with TFX's own, under TFX's runners."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tfx.components import ExampleValidator, SchemaGen, StatisticsGen, Transform
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline

from components import ImageExampleGen, statistics_options
from components.contract.anomalies import Anomaly, read_anomalies
from components.contract.example import ENCODED, LABEL
from pipeline_def.kubeflow.specification import check_documents
from tests.nodes import IN_MEMORY
from tests.pictures import write_folder

# One process imports TensorFlow for all of them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stock components")]


def pipeline(components: Sequence[BaseComponent], folder: Path) -> Pipeline:
    return Pipeline(
        pipeline_name="stock",
        pipeline_root=str(folder / "artifacts"),
        components=components,
        metadata_connection_config=sqlite_metadata_connection_config(str(folder / "m.sqlite")),
        beam_pipeline_args=list(IN_MEMORY),
    )


def written(folder: Path, node: str, output: str) -> str:
    """Return the URI of an output of the only run."""
    [artifact] = (folder / "artifacts" / node / output).iterdir()
    return str(artifact)


def validated(examples: Any) -> tuple[StatisticsGen, SchemaGen, ExampleValidator]:
    """TFX's own components, with our options."""
    statistics = StatisticsGen(examples=examples, stats_options=statistics_options())
    # Of the train split alone, so that the names of the other one are new to it.
    schema = SchemaGen(statistics=statistics.outputs["statistics"], exclude_splits=["eval"])
    validator = ExampleValidator(
        statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"]
    )
    return statistics, schema, validator


def preprocessing_fn(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Decode and shrink the images, and number the labels, as users of TFX do."""

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        return tf.image.resize(image, [8, 8]) / 255.0

    pixels = tf.map_fn(decode, tf.reshape(inputs[ENCODED], [-1]), fn_output_signature=tf.float32)
    return {
        "pixels": tf.ensure_shape(pixels, [None, 8, 8, 3]),
        "label": tft.compute_and_apply_vocabulary(tf.reshape(inputs[LABEL], [-1])),
    }


def after_our_ingest(images: Path) -> list[BaseComponent]:
    """ImageExampleGen, followed by TFX's own components."""
    ingest = ImageExampleGen(folder=str(images))
    examples = ingest.outputs["examples"]
    statistics, schema, validator = validated(examples)
    transform = Transform(
        examples=examples,
        schema=schema.outputs["schema"],
        preprocessing_fn=f"{__name__}.preprocessing_fn",
        disable_statistics=True,
    )
    return [ingest, statistics, schema, validator, transform]


def anomalies(folder: Path) -> dict[str, list[Anomaly]]:
    uri = written(folder, "ExampleValidator", "anomalies")
    return read_anomalies(uri, json.dumps(["eval", "train"]))


def test_tfx_components_read_image_example_gen(tmp_path: Path) -> None:
    images = write_folder(tmp_path / "images", each=20)
    LocalDagRunner().run(pipeline(after_our_ingest(images), tmp_path))
    # With its own options TFX would allow no file names but those of the train split.
    assert anomalies(tmp_path) == {"eval": [], "train": []}
    graph = tft.TFTransformOutput(written(tmp_path, "Transform", "transform_graph"))
    assert graph.transformed_feature_spec()["pixels"].shape == [8, 8, 3]
    examples = written(tmp_path, "Transform", "transformed_examples")
    files = tf.io.gfile.glob(f"{examples}/Split-*/*")
    records = tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()
    parsed = [tf.io.parse_example(record, graph.transformed_feature_spec()) for record in records]
    assert len(parsed) == 60
    assert {int(example["label"]) for example in parsed} == {0, 1, 2}


def test_tfx_kubeflow_runner_compiles_our_components(tmp_path: Path) -> None:
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
        default_image="registry/image", use_pipeline_spec_2_1=True
    )
    components = after_our_ingest(tmp_path)
    whole = Pipeline("stock", pipeline_root="gs://bucket/root", components=components)
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(config)
    spec = runner.run(whole, write_out=False)["pipelineSpec"]
    assert set(spec["root"]["dag"]["tasks"]) == {component.id for component in components}
    check_documents([spec], "vertex")
    # The hook that TFX gives to every ExampleGen that reads files, its own ones, too.
    executors = spec["deploymentSpec"]["executors"].items()
    hooked = [name for name, executor in executors if "lifecycle" in executor.get("container", {})]
    assert hooked == [f"{components[0].id}_executor"]
