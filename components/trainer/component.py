"""ImageTrainer: TFX's Trainer with our run_fn, on the output of ImageTransform."""

import dataclasses
import json
from typing import Any

from tfx import types
from tfx.components.trainer import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts, standard_component_specs
from tfx.utils import json_utils

from components.contract.configuration import from_dict, to_dict
from components.contract.errors import ConfigurationError
from components.contract.tfx_classes import Artifacts, LookupDriver
from components.images.options import TransformConfig
from components.trainer.config.training import TrainerConfig
from components.trainer.networks.weights_file import look_up

# A name, so that creating a pipeline does not import the training code.
_RUN_FN = f"{__package__}.run_fn.run_fn"


class Driver(LookupDriver):
    """Makes the content of the initial weights part of the cache key, not only its name."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("custom_config",)


class Executor(executor.GenericExecutor):
    """Calls `run_fn`, and passes on what ImageTuner has trained."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Train, and let go of all images afterwards."""
        from components.trainer.input.host_calls import forget_calls

        try:
            super().Do(input_dict, output_dict, exec_properties)
        finally:
            forget_calls()

    def _GetFnArgs(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> Any:
        fn_args = super()._GetFnArgs(input_dict, output_dict, exec_properties)
        fn_args.custom_config["code"] = exec_properties.get("code_digest") or ""
        if runs := input_dict.get("tuner_run"):
            fn_args.custom_config["tuner_run"] = artifact_utils.get_single_uri(runs)
        return fn_args


class ImageTrainerSpec(component_spec.ComponentSpec):
    """Trainer's spec with what ImageTuner has trained."""

    PARAMETERS = standard_component_specs.TrainerSpec.PARAMETERS
    INPUTS = {
        **standard_component_specs.TrainerSpec.INPUTS,
        "tuner_run": component_spec.ChannelParameter(
            type=standard_artifacts.ModelRun, optional=True
        ),
    }
    OUTPUTS = standard_component_specs.TrainerSpec.OUTPUTS


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

    SPEC_CLASS = ImageTrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        hyperparameters: types.BaseChannel | None = None,
        tuner_run: types.BaseChannel | None = None,
        config: TrainerConfig | None = None,
    ) -> None:
        """Train on the split `train`, and choose the best epoch on the split `eval`.

        Args:
            examples: transformed examples.
            transform_graph: of the same ImageTransform.
            hyperparameters: `best_hyperparameters` of ImageTuner, which replace those of `config`.
            tuner_run: of the same ImageTuner; None: train with them from the start.
            config: without `transform.size`, `transform` is taken from the ImageTransform; without
                a network, one is chosen for the images.

        Raises:
            ConfigurationError: it is unknown how the images were transformed, or nothing searches
                for `training.minutes`.
        """
        config = complete(config or TrainerConfig(), transform_graph)
        if config.training.minutes and not hyperparameters:
            raise ConfigurationError(
                "training.minutes is the time of an ImageTuner: add one, and pass on its outputs, "
                "ImageTrainer(hyperparameters=tuner.outputs['best_hyperparameters'], "
                "tuner_run=tuner.outputs['tuner_run'])."
            )
        training = dataclasses.replace(config.training, minutes=None, fixed=[])
        config = dataclasses.replace(config, training=training)
        spec = ImageTrainerSpec(
            examples=examples,
            transform_graph=transform_graph,
            hyperparameters=hyperparameters,
            tuner_run=tuner_run,
            run_fn=_RUN_FN,
            train_args=trainer_pb2.TrainArgs(splits=["train"]),
            eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
            custom_config=json_utils.dumps(to_dict(config)),
            model=types.Channel(type=standard_artifacts.Model),
            model_run=types.Channel(type=standard_artifacts.ModelRun),
        )
        # Trainer's constructor builds TFX's spec, so skip it and pass ours to its base class.
        super(component.Trainer, self).__init__(spec=spec)
        if config.model.weights_file:
            self.driver_class = Driver


def complete(config: TrainerConfig, transform_graph: types.BaseChannel) -> TrainerConfig:
    """Return the configuration with that of the ImageTransform that writes `transform_graph`."""
    if config.transform.size is not None:
        return config
    producer = getattr(transform_graph, "producer_component", None)
    fields = json.loads(getattr(producer, "exec_properties", {}).get("custom_config") or "{}")
    # TFX's own Transform may have a `custom_config` with other fields.
    if "fit" not in fields:
        raise ConfigurationError(
            "transform_graph does not come from an ImageTransform of this pipeline: configure how "
            "the images were transformed, as in TrainerConfig(transform=TransformConfig(size=96))."
        )
    return dataclasses.replace(config, transform=from_dict(TransformConfig, fields))
