"""TFX components of the image pipeline, by the names that other people's pipelines import.

    from components import ImageExampleGen, ImageTransform, statistics_options

A name is looked up when it is asked for: TFX, which takes seconds to import, is loaded by the
components alone, not by the logic that lies in the same folders.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

COMPONENTS = {
    "AnomalyGate": "components.validation.gate",
    "BaselineFinder": "components.evaluation.baseline",
    "ImageEvaluator": "components.evaluation.component",
    "ImageExampleGen": "components.ingest.component",
    "ImagePredictor": "components.predict.component",
    "ImagePusher": "components.push.component",
    "ImageReport": "components.report.component",
    "ImageSchemaGen": "components.validation.schema_gen",
    "ImageStatisticsGen": "components.validation.statistics_gen",
    "ImageTrainer": "pipeline_def.training.component",
    "ImageTransform": "components.transform.component",
    "ImageTuner": "pipeline_def.training.search.component",
    "ImageValidator": "components.validation.validator",
}
"""Component → the module that defines it."""

_OTHERS = {
    "AugmentationConfig": "pipeline_def.config.augmentation",
    "EvaluationConfig": "components.evaluation.config",
    "IngestConfig": "components.ingest.config",
    "ModelConfig": "pipeline_def.config.model",
    "PredictConfig": "components.predict.config",
    "TrainerConfig": "pipeline_def.config.training",
    "TrainingConfig": "pipeline_def.config.training",
    "TransformConfig": "components.transform.config",
    "ValidationConfig": "components.validation.config",
    "statistics_options": "components.validation.statistics_gen",
    "to_json": "components.contract.configuration",
}
_PLACES = COMPONENTS | _OTHERS

if TYPE_CHECKING:
    from components.contract.configuration import to_json as to_json
    from components.evaluation.baseline import BaselineFinder as BaselineFinder
    from components.evaluation.component import ImageEvaluator as ImageEvaluator
    from components.evaluation.config import EvaluationConfig as EvaluationConfig
    from components.ingest.component import ImageExampleGen as ImageExampleGen
    from components.ingest.config import IngestConfig as IngestConfig
    from components.predict.component import ImagePredictor as ImagePredictor
    from components.predict.config import PredictConfig as PredictConfig
    from components.push.component import ImagePusher as ImagePusher
    from components.report.component import ImageReport as ImageReport
    from components.transform.component import ImageTransform as ImageTransform
    from components.transform.config import TransformConfig as TransformConfig
    from components.validation.config import ValidationConfig as ValidationConfig
    from components.validation.gate import AnomalyGate as AnomalyGate
    from components.validation.schema_gen import ImageSchemaGen as ImageSchemaGen
    from components.validation.statistics_gen import ImageStatisticsGen as ImageStatisticsGen
    from components.validation.statistics_gen import statistics_options as statistics_options
    from components.validation.validator import ImageValidator as ImageValidator
    from pipeline_def.config.augmentation import AugmentationConfig as AugmentationConfig
    from pipeline_def.config.model import ModelConfig as ModelConfig
    from pipeline_def.config.training import TrainerConfig as TrainerConfig
    from pipeline_def.config.training import TrainingConfig as TrainingConfig
    from pipeline_def.training.component import ImageTrainer as ImageTrainer
    from pipeline_def.training.search.component import ImageTuner as ImageTuner

__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
