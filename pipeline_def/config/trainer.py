"""The configuration of the Trainer step: all sections that it reads, as one."""

from __future__ import annotations

from dataclasses import dataclass, field

from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.config.transfer import TransferConfig


@dataclass(frozen=True)
class TrainerConfig:
    """All choices on the way from transformed examples to a model."""

    transform: TransformConfig = field(default_factory=TransformConfig)
    input: InputConfig = field(default_factory=InputConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)

    checkpoints: str = ""
    """Folder, a path or URL, for checkpoints of trainings whose model is not exported yet."""

    weights_version: str = ""
    """What changes when the file of `model.weights` does, so that no cached model is of another
    file. Empty on a cluster, whose files the machine that compiles may not see."""
