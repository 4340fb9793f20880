"""A pipeline of your own, of our components and TFX's: `uv run -m examples.pipeline DIR OUT`."""

from __future__ import annotations

import sys

from tfx.components import ExampleValidator, Pusher, StatisticsGen
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto.pusher_pb2 import PushDestination

from components import (
    ImageEvaluator,
    ImageExampleGen,
    ImageSchemaGen,
    ImageTrainer,
    ImageTransform,
    TransformConfig,
    statistics_options,
)


def create_pipeline(images: str, output: str) -> Pipeline:
    """Train on the folder `images`, laid out as label/image, and push a model that is good."""
    ingest = ImageExampleGen(folder=images)
    examples = ingest.outputs["examples"]
    count = StatisticsGen(examples=examples, stats_options=statistics_options())
    infer = ImageSchemaGen(statistics=count.outputs["statistics"])
    schema = infer.outputs["schema"]
    validate = ExampleValidator(statistics=count.outputs["statistics"], schema=schema)
    transform = ImageTransform(examples=examples, schema=schema, config=TransformConfig(size=32))
    train = ImageTrainer(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
    )
    model = train.outputs["model"]
    evaluate = ImageEvaluator(examples=examples, model=model)
    folder = PushDestination.Filesystem(base_directory=f"{output}/pushed")
    push = Pusher(
        model=model,
        model_blessing=evaluate.outputs["blessing"],
        push_destination=PushDestination(filesystem=folder),
    )
    return Pipeline(
        pipeline_name="images",
        pipeline_root=f"{output}/artifacts",
        components=[ingest, count, infer, validate, transform, train, evaluate, push],
        metadata_connection_config=sqlite_metadata_connection_config(f"{output}/metadata.sqlite"),
        # Beam's DirectRunner would first try to download a helper program.
        beam_pipeline_args=["--runner=FnApiRunner", "--direct_running_mode=in_memory"],
    )


if __name__ == "__main__":
    LocalDagRunner().run(create_pipeline(*sys.argv[1:]))
