"""A pipeline of image components and TFX's own: `python -m my_images.pipeline DIR OUT`.

ExampleValidator, Evaluator, BulkInferrer and Pusher are TFX's. TFX's InfraValidator needs a
container or a cluster; ImageEvaluator instead tries the model in a fresh process. In the place of
TFX's Tuner is ImageTuner, from whose hyperparameters ImageTrainer goes on.
"""

import sys

import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from tfx.components import BulkInferrer, Evaluator, ExampleValidator, Pusher
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import bulk_inferrer_pb2, pusher_pb2
from tfx_image_pipeline.components import (
    AugmentationConfig,
    ImageExampleGen,
    ImageSchemaGen,
    ImageStatisticsGen,
    ImageTrainer,
    ImageTransform,
    ModelConfig,
    TrainerConfig,
    TrainingConfig,
    TransformConfig,
)

# The signatures of the exported model, with the label that `transform_features` numbers.
EVAL_CONFIG = text_format.Parse(
    """
    model_specs {
      signature_name: "serving_examples"
      preprocessing_function_names: "transform_features"
      label_key: "image/class/label"
      prediction_key: "probabilities"
    }
    slicing_specs {}
    slicing_specs { feature_keys: "image/format" }
    metrics_specs {
      metrics {
        class_name: "SparseCategoricalAccuracy"
        threshold { value_threshold { lower_bound { value: 0.2 } } }
      }
    }
    """,
    tfma.EvalConfig(),
)


def create_pipeline(images: str, output: str) -> Pipeline:
    """Train on the folder `images`, laid out as label/image, and push a blessed model."""
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
        config=TrainerConfig(
            model=ModelConfig(build_fn="my_images.network.build"),
            augmentation=AugmentationConfig(fn="my_images.augmentation.augment"),
            training=TrainingConfig(epochs=3),
        ),
    )
    model = train.outputs["model"]
    evaluate = Evaluator(
        examples=examples, model=model, eval_config=EVAL_CONFIG, example_splits=["eval"]
    )
    blessing = evaluate.outputs["blessing"]
    predict = BulkInferrer(
        examples=examples,
        model=model,
        model_blessing=blessing,
        data_spec=bulk_inferrer_pb2.DataSpec(example_splits=["eval"]),
        model_spec=bulk_inferrer_pb2.ModelSpec(model_signature_name=["serving_examples"]),
    )
    folder = pusher_pb2.PushDestination.Filesystem(base_directory=f"{output}/pushed")
    push = Pusher(
        model=model,
        model_blessing=blessing,
        push_destination=pusher_pb2.PushDestination(filesystem=folder),
    )
    return Pipeline(
        pipeline_name="images",
        pipeline_root=f"{output}/artifacts",
        components=[ingest, count, infer, validate, transform, train, evaluate, predict, push],
        metadata_connection_config=sqlite_metadata_connection_config(f"{output}/metadata.sqlite"),
        # Beam's DirectRunner would first try to download a helper program.
        beam_pipeline_args=["--runner=FnApiRunner", "--direct_running_mode=in_memory"],
    )


if __name__ == "__main__":
    LocalDagRunner().run(create_pipeline(*sys.argv[1:]))
