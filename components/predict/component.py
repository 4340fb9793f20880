"""ImagePredictor: predicts every file of a folder with a blessed model, by Beam.

It replaces TFX's BulkInferrer, which takes examples. Converting a folder of new images to examples
would lose the files that are not images.
"""

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from components.contract.configuration import to_json
from components.contract.tfx_classes import ImagePredictions, LookupDriver
from components.images.options import FileOptions
from components.predict.executor import Executor
from components.predict.files import FOUND_KEY, PredictConfig, look_up


class Driver(LookupDriver):
    """Lists the folder before the cache is consulted, so that new files are not a cache hit."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("folder",)


class ImagePredictorSpec(component_spec.ComponentSpec):
    """A model, its blessing, and a folder."""

    PARAMETERS = {
        "folder": component_spec.ExecutionParameter(type=str),
        "config": component_spec.ExecutionParameter(type=str),
        "options": component_spec.ExecutionParameter(type=str),
        FOUND_KEY: component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_blessing": component_spec.ChannelParameter(
            type=standard_artifacts.ModelBlessing, optional=True
        ),
    }
    OUTPUTS = {"predictions": component_spec.ChannelParameter(type=ImagePredictions)}


class ImagePredictor(base_beam_component.BaseBeamComponent):
    """Predicts the labels of all files in a folder, read as ImageExampleGen reads them.

    Example:
        >>> from components import ImagePredictor
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.types.standard_artifacts import Model
        >>> model = Importer(source_uri="trained/1", artifact_type=Model)
        >>> predictor = ImagePredictor(folder="new_photos", model=model.outputs["result"])
        >>> sorted(predictor.outputs)
        ['predictions']

    Outputs:
        predictions: `ImagePredictions`: Parquet tables with one row per file, in order, and
            `summary.json`.
    """

    SPEC_CLASS = ImagePredictorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        *,
        folder: str,
        model: types.BaseChannel,
        model_blessing: types.BaseChannel | None = None,
        config: PredictConfig | None = None,
        options: FileOptions | None = None,
    ) -> None:
        """Predict the files of `folder` with `model`.

        Args:
            folder: path or URL.
            model: model of ImageTrainer.
            model_blessing: blessing of ImageEvaluator. A model that is not blessed predicts
                nothing. None: use the model in any case.
            config: labels per image; default: `PredictConfig()`.
            options: how the training images were read, such as the `IngestConfig` of
                ImageExampleGen; default: `FileOptions()`.
        """
        # Only what decides how a file is read: other options must not change the cache key.
        options, fields = options or FileOptions(), FileOptions.__dataclass_fields__
        spec = ImagePredictorSpec(
            folder=folder,
            model=model,
            model_blessing=model_blessing,
            config=to_json(config or PredictConfig()),
            options=to_json(FileOptions(**{name: getattr(options, name) for name in fields})),
            predictions=types.Channel(type=ImagePredictions),
        )
        super().__init__(spec=spec)
