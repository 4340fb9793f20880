"""A pipeline of your own, of our components and TFX's: `uv run -m examples.pipeline DIR OUT`."""

import sys

from tfx.components import ExampleValidator
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline

from components import (
    ImageEvaluator,
    ImageExampleGen,
    ImageSchemaGen,
    ImageStatisticsGen,
    ImageTrainer,
    ImageTransform,
    TransformConfig,
)


def create_pipeline(images: str, output: str) -> Pipeline:
    """Train on the folder `images`, laid out as label/image, and judge the model."""
    ingest = ImageExampleGen(folder=images)
    examples = ingest.outputs["examples"]
    count = ImageStatisticsGen(examples=examples)
    statistics = count.outputs["statistics"]
    infer = ImageSchemaGen(statistics=statistics)
    schema = infer.outputs["schema"]
    validate = ExampleValidator(statistics=statistics, schema=schema)
    transform = ImageTransform(examples=examples, schema=schema, config=TransformConfig(size=32))
    train = ImageTrainer(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
    )
    evaluate = ImageEvaluator(examples=examples, model=train.outputs["model"])
    return Pipeline(
        pipeline_name="images",
        pipeline_root=f"{output}/artifacts",
        components=[ingest, count, infer, validate, transform, train, evaluate],
        metadata_connection_config=sqlite_metadata_connection_config(f"{output}/metadata.sqlite"),
        # Beam's DirectRunner would first try to download a helper program.
        beam_pipeline_args=["--runner=FnApiRunner", "--direct_running_mode=in_memory"],
    )


if __name__ == "__main__":
    LocalDagRunner().run(create_pipeline(*sys.argv[1:]))
