"""The configuration of the Trainer step: all sections that it reads, as one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.export import ExportConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.network_choice import resolve
from pipeline_def.config.originals import check_originals
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

    export: ExportConfig = field(default_factory=ExportConfig)
    """Its `max_drop` is the Evaluator's."""

    checkpoints: str = ""
    """Folder, a path or URL, for checkpoints of trainings whose model is not exported yet. Empty:
    beside the logs of this attempt, where no other attempt finds them."""

    weights_version: str = ""
    """What changes when the file of `model.weights` does, so that no cached model is of another
    file. Empty on a cluster, whose files the machine that compiles may not see."""

    def __post_init__(self) -> None:
        """Check what the sections say together."""
        check_originals(self.transform, self.input, self.augmentation)


@dataclass(frozen=True)
class _Open:
    """The sections in which the images decide what nobody else has decided."""

    transform: TransformConfig = field(default_factory=TransformConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    given: list[str] = field(default_factory=list)


def fill_in(choices: TrainerConfig, *, images: int) -> TrainerConfig:
    """Choose network and recipe, where nobody has: a local run does so before its first step.

    Args:
        choices: with `transform.size`.
        images: to train on.
    """
    sections = _Open(choices.transform, choices.model, choices.training, choices.augmentation)
    size = choices.transform.seen_size
    chosen, _ = resolve(sections, shorter_side=size, images=images)
    return dataclasses.replace(
        choices, model=chosen.model, training=chosen.training, augmentation=chosen.augmentation
    )
