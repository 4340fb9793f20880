"""TFX components of the image pipeline, by the names that other people's pipelines import.

    from components import ImageExampleGen, ImageTransform, statistics_options

A name is looked up when it is asked for: TFX, which takes seconds to import, is loaded by the
components alone, not by the logic that lies in the same folders.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

COMPONENTS = {
    "AnomalyGate": ".validation.gate",
    "BaselineFinder": ".evaluation.baseline",
    "ImageEvaluator": ".evaluation.component",
    "ImageExampleGen": ".ingest.component",
    "ImagePredictor": ".predict.component",
    "ImagePusher": ".push.component",
    "ImageReport": ".report.component",
    "ImageSchemaGen": ".validation.schema_gen",
    "ImageStatisticsGen": ".validation.statistics_gen",
    "ImageTrainer": ".trainer.component",
    "ImageTransform": ".transform.component",
    "ImageTuner": ".tuner.component",
    "ImageValidator": ".validation.validator",
}
"""Component → the module that defines it, relative to this package."""

_OTHERS = {
    "AugmentationConfig": ".trainer.config.input",
    "EvaluationConfig": ".evaluation.config",
    "IngestConfig": ".ingest.config",
    "ModelConfig": ".trainer.config.model",
    "PredictConfig": ".predict.files",
    "TrainerConfig": ".trainer.config.training",
    "TrainingConfig": ".trainer.config.training",
    "TransformConfig": ".images.options",
    "ValidationConfig": ".validation.config",
    "statistics_options": ".validation.statistics_gen",
    "to_json": ".contract.configuration",
}
_PLACES = COMPONENTS | _OTHERS

if TYPE_CHECKING:
    from components.contract.configuration import to_json as to_json
    from components.evaluation.baseline import BaselineFinder as BaselineFinder
    from components.evaluation.component import ImageEvaluator as ImageEvaluator
    from components.evaluation.config import EvaluationConfig as EvaluationConfig
    from components.images.options import TransformConfig as TransformConfig
    from components.ingest.component import ImageExampleGen as ImageExampleGen
    from components.ingest.config import IngestConfig as IngestConfig
    from components.predict.component import ImagePredictor as ImagePredictor
    from components.predict.files import PredictConfig as PredictConfig
    from components.push.component import ImagePusher as ImagePusher
    from components.report.component import ImageReport as ImageReport
    from components.trainer.component import ImageTrainer as ImageTrainer
    from components.trainer.config.input import AugmentationConfig as AugmentationConfig
    from components.trainer.config.model import ModelConfig as ModelConfig
    from components.trainer.config.training import TrainerConfig as TrainerConfig
    from components.trainer.config.training import TrainingConfig as TrainingConfig
    from components.transform.component import ImageTransform as ImageTransform
    from components.tuner.component import ImageTuner as ImageTuner
    from components.validation.config import ValidationConfig as ValidationConfig
    from components.validation.gate import AnomalyGate as AnomalyGate
    from components.validation.schema_gen import ImageSchemaGen as ImageSchemaGen
    from components.validation.statistics_gen import ImageStatisticsGen as ImageStatisticsGen
    from components.validation.statistics_gen import statistics_options as statistics_options
    from components.validation.validator import ImageValidator as ImageValidator

__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
