"""ImageTuner: TFX's Tuner with our search, on the output of ImageTransform."""

import dataclasses

from tfx import types
from tfx.components.tuner import component
from tfx.dsl.components.base import executor_spec
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from tfx.utils import json_utils

from components.contract.configuration import require, to_dict
from components.trainer.component import Driver, complete
from components.trainer.config.model import ExportConfig
from components.trainer.config.training import TrainerConfig
from components.tuner.executor import Executor


class ImageTunerSpec(component_spec.ComponentSpec):
    """Tuner's spec, with what the search leaves for ImageTrainer in place of its results."""

    PARAMETERS = standard_component_specs.TunerSpec.PARAMETERS
    INPUTS = standard_component_specs.TunerSpec.INPUTS
    OUTPUTS = {
        "best_hyperparameters": component_spec.ChannelParameter(
            type=standard_artifacts.HyperParameters
        ),
        "tuner_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
    }


class ImageTuner(component.Tuner):
    """Searches for a more accurate training for `training.minutes`.

    Example:
        >>> from components import ImageTuner, TrainerConfig, TrainingConfig, TransformConfig
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.types.standard_artifacts import Examples, TransformGraph
        >>> examples = Importer(source_uri="transformed", artifact_type=Examples)
        >>> graph = Importer(source_uri="graph", artifact_type=TransformGraph)
        >>> tuner = ImageTuner(
        ...     examples=examples.outputs["result"],
        ...     transform_graph=graph.outputs["result"],
        ...     config=TrainerConfig(
        ...         transform=TransformConfig(size=32), training=TrainingConfig(minutes=60)
        ...     ),
        ... )
        >>> sorted(tuner.outputs)
        ['best_hyperparameters', 'tuner_run']

    Outputs:
        best_hyperparameters: `HyperParameters`, the chosen values, as KerasTuner stores them.
        tuner_run: `ModelRun`, the checkpoints of the chosen trial, from which ImageTrainer goes on,
            `best.yaml`, `search.json`, and TensorBoard logs of all trials.
    """

    SPEC_CLASS = ImageTunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        config: TrainerConfig,
    ) -> None:
        """Train on the split `train`, and compare on the split `eval` or by cross-validation.

        Args:
            examples: transformed examples.
            transform_graph: of the same ImageTransform.
            config: as for the ImageTrainer, with `training.minutes`.

        Raises:
            ConfigurationError: it is unknown how the images were transformed, or how long to
                search.
        """
        require(
            config.training.minutes is not None,
            "training.minutes is not set: it says how long ImageTuner searches.",
        )
        # Other exports must not search again; folds keep what `export.false_alarms` needs.
        export = ExportConfig(false_alarms=config.export.false_alarms)
        config = complete(dataclasses.replace(config, export=export), transform_graph)
        spec = ImageTunerSpec(
            examples=examples,
            transform_graph=transform_graph,
            train_args=trainer_pb2.TrainArgs(splits=["train"]),
            eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
            custom_config=json_utils.dumps(to_dict(config)),
            best_hyperparameters=types.Channel(type=standard_artifacts.HyperParameters),
            tuner_run=types.Channel(type=standard_artifacts.ModelRun),
        )
        # Tuner's constructor builds TFX's spec, so skip it and pass ours to its base class.
        super(component.Tuner, self).__init__(spec=spec)
        if config.model.weights_file:
            self.driver_class = Driver
