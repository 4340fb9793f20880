"""ImagePredictor: a blessed model's answers to every file of a folder, by Beam.

It stands where TFX's BulkInferrer would, which takes examples: of a folder of new images there are
none, and files that are no images would have been lost on the way to them.
"""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from components.contract.artifacts import ImagePredictions
from components.contract.configuration import to_json
from components.contract.lookup_driver import LookupDriver
from components.images.options import FileOptions
from components.predict.config import PredictConfig
from components.predict.executor import Executor
from components.predict.lookup import FOUND_KEY, look_up


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
    """Labels all files of a folder, a path or a URL, read as ImageExampleGen reads them.

    Example:
        >>> from components import ImagePredictor
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.types.standard_artifacts import Model
        >>> model = Importer(source_uri="trained/1", artifact_type=Model)
        >>> predictor = ImagePredictor(folder="new_photos", model=model.outputs["result"])
        >>> sorted(predictor.outputs)
        ['predictions']

    Outputs:
        predictions: `ImagePredictions`, Parquet tables with a row for each file, in the order of
            the files, and `summary.json`.
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
        """Ask `model` about the files of `folder`.

        Args:
            folder: path or URL.
            model: of ImageTrainer.
            model_blessing: of ImageEvaluator; a model that is not blessed is not asked. None: it is
                asked in any case.
            config: how much is asked at once; None: `PredictConfig()`.
            options: how the training images were read and stored, such as the `IngestConfig` of
                ImageExampleGen; None: `FileOptions()`.
        """
        spec = ImagePredictorSpec(
            folder=folder,
            model=model,
            model_blessing=model_blessing,
            config=to_json(config or PredictConfig()),
            options=to_json(reading_options(options or FileOptions())),
            predictions=types.Channel(type=ImagePredictions),
        )
        super().__init__(spec=spec)


def reading_options(options: FileOptions) -> FileOptions:
    """Return what concerns files and images of a configuration that may say more."""
    fields = FileOptions.__dataclass_fields__
    return FileOptions(**{name: getattr(options, name) for name in fields})
