"""Configuration of the Trainer step: all sections that it reads."""

from __future__ import annotations

from dataclasses import field

from components.contract.configuration import Text, configuration
from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig, check_originals
from pipeline_def.config.model import ExportConfig, ModelConfig
from pipeline_def.config.training import TrainingConfig, TransferConfig


@configuration()
class TrainerConfig:
    """All options between transformed examples and a model."""

    transform: TransformConfig = field(default_factory=TransformConfig)
    input: InputConfig = field(default_factory=InputConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)

    export: ExportConfig = field(default_factory=ExportConfig)
    """Its `max_drop` is for the Evaluator."""

    checkpoints: Text = ""
    """Folder, a path or URL, for checkpoints of trainings whose model is not exported yet. Empty:
    beside the logs of this attempt, where no other attempt finds them."""

    def __post_init__(self) -> None:
        """Check the sections against each other."""
        check_originals(self.transform, self.input, self.augmentation)
