"""Every choice of the pipeline, once: its default, its unit and the reason for it.

The command line and the YAML file are generated from these classes; nothing here imports TFX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from components.contract.configuration import require
from components.contract.kinds import check_types
from components.evaluation.config import EvaluationConfig
from components.ingest.config import IngestConfig
from components.predict.config import PredictConfig
from components.transform.config import TransformConfig
from components.validation.config import ValidationConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.export import ExportConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.kubeflow import KubeflowConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.originals import check_originals
from pipeline_def.config.training import TrainingConfig
from pipeline_def.config.transfer import TransferConfig

# It is part of paths, of the keys of caches, and of what is printed.
_NAME = re.compile(r"\w[\w .-]{0,99}")


@dataclass(frozen=True)
class Config:
    """The whole pipeline."""

    data: str | None = None
    """Folder of images, as label/image or split/label/image (train, and eval, val, validation or
    test). Unset: a built-in sample, 1,797 handwritten digits."""

    output: str = "output"
    """Folder for everything the pipeline writes; run again with the same one to reuse results. A
    folder, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER."""

    working_copy: str | None = None
    """Folder on this machine in which a local run works if `output` is in a store; all of it is
    copied there after every step. Unset: one named after the URL, below `$XDG_STATE_HOME` or
    `~/.local/state`."""

    name: str = "images"
    """Name of the pipeline."""

    cache: bool = True
    """Reuse the results of steps whose inputs, configuration and code have not changed."""

    ingest: IngestConfig = field(default_factory=IngestConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    transform: TransformConfig = field(default_factory=TransformConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    input: InputConfig = field(default_factory=InputConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    export: ExportConfig = field(default_factory=ExportConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    predict: PredictConfig = field(default_factory=PredictConfig)
    kubeflow: KubeflowConfig = field(default_factory=KubeflowConfig)

    given: list[str] = field(default_factory=list)
    """Fields, as `section.field`, that the user has named; no recipe changes them. Filled in by the
    command line."""

    beam_pipeline_args: list[str] = field(
        default_factory=lambda: [
            "--runner=FnApiRunner",
            "--direct_running_mode=in_memory",
            "--sdk_container_image=none",
        ]
    )
    """Options of Apache Beam, which runs ingest, statistics, transform and evaluation. Beam's
    DirectRunner would first try to download a helper program, FnApiRunner does not; without an
    image TFX would pack itself for remote workers, for a second or more in every step."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "")
        require(
            bool(_NAME.fullmatch(self.name)),
            f"name is {self.name!r}: take up to 100 letters, digits, spaces, and . _ - for it.",
        )
        for name in ("data", "output"):
            value = getattr(self, name)
            require(value is None or bool(value.strip()), f"{name} is empty: name a folder.")
        require(
            self.training.balance != "sampling"
            or self.input.reader != "streamed"
            or self.input.cache != "none",
            "training.balance is 'sampling', which takes records in any order: it needs "
            "input.reader indexed, or input.cache decoded.",
        )
        check_originals(self.transform, self.input, self.augmentation)
