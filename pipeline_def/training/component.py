"""ImageTrainer: TFX's Trainer with our run_fn, on the output of ImageTransform."""

import dataclasses
import json

from tfx import types
from tfx.components.trainer import component
from tfx.proto import trainer_pb2

from components.contract.configuration import to_dict
from components.contract.errors import ConfigurationError
from components.contract.lookup_driver import LookupDriver
from components.transform.component import ImageTransform
from components.transform.config import TransformConfig, read_custom_config
from pipeline_def.config.training import TrainerConfig
from pipeline_def.model.weights_file import look_up

# A name, so that creating a pipeline does not import the training code.
_RUN_FN = "pipeline_def.training.run_fn.run_fn"


class Driver(LookupDriver):
    """Makes the content of the initial weights part of the cache key, not only its name."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("custom_config",)


class ImageTrainer(component.Trainer):
    """Trains a network on the images that ImageTransform wrote, and exports it.

    Example:
        >>> from components import ImageExampleGen, ImageTrainer, ImageTransform
        >>> from components import TrainerConfig, TrainingConfig
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.types.standard_artifacts import Schema
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> schema = Importer(source_uri="reviewed_schema", artifact_type=Schema)
        >>> transform = ImageTransform(
        ...     examples=example_gen.outputs["examples"], schema=schema.outputs["result"]
        ... )
        >>> trainer = ImageTrainer(
        ...     examples=transform.outputs["transformed_examples"],
        ...     transform_graph=transform.outputs["transform_graph"],
        ...     config=TrainerConfig(training=TrainingConfig(epochs=3)),
        ... )
        >>> sorted(trainer.outputs)
        ['model', 'model_run']

    Outputs:
        model: `Model`, a SavedModel that takes image files.
        model_run: `ModelRun`, TensorBoard logs, the history, and the weights of the backbone.
    """

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        config: TrainerConfig | None = None,
    ) -> None:
        """Train on the split `train`, and choose the best epoch on the split `eval`.

        Args:
            examples: transformed examples.
            transform_graph: of the same ImageTransform.
            config: without `transform.size`, `transform` is taken from the ImageTransform; without
                a network, one is chosen for the images.

        Raises:
            ConfigurationError: it is unknown how the images were transformed.
        """
        config = config or TrainerConfig()
        if config.transform.size is None:
            config = dataclasses.replace(config, transform=_transform_of(transform_graph))
        super().__init__(
            run_fn=_RUN_FN,
            examples=examples,
            transform_graph=transform_graph,
            train_args=trainer_pb2.TrainArgs(splits=["train"]),
            eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
            custom_config=to_dict(config),
        )
        if config.model.weights_file or config.model.start:
            self.driver_class = Driver


def _transform_of(transform_graph: types.BaseChannel) -> TransformConfig:
    """Return the configuration of the ImageTransform that writes `transform_graph`."""
    producer = getattr(transform_graph, "producer_component", None)
    if not isinstance(producer, ImageTransform):
        raise ConfigurationError(
            "transform_graph does not come from an ImageTransform of this pipeline: configure how "
            "the images were transformed, as in TrainerConfig(transform=TransformConfig(size=96))."
        )
    return read_custom_config(json.loads(producer.exec_properties["custom_config"]))[0]
