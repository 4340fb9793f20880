"""The whole configuration. The command line and YAML files are generated from its classes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from components.contract.configuration import Text, configuration, require, to_dict
from components.contract.errors import ConfigurationError
from components.contract.printable import hide_login
from components.evaluation.config import EvaluationConfig
from components.images.options import TransformConfig
from components.ingest.config import IngestConfig
from components.predict.files import PredictConfig
from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.model import ExportConfig, ModelConfig
from components.trainer.config.training import TrainingConfig, TransferConfig
from components.validation.config import ValidationConfig
from pipeline_def.config.kubeflow import KubeflowConfig
from pipeline_def.service_errors import is_http_url

# The name is part of paths, cache keys and printed text.
_NAME = re.compile(r"\w[\w .-]{0,99}")

TOKEN_VARIABLE = "MLFLOW_TRACKING_TOKEN"
"""Environment variable with a token, or with USER:PASSWORD; it may be missing."""


def _find_logins(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of options that are URLs with passwords."""
    for name, value in fields.items():
        if isinstance(value, dict) and f"{prefix}{name}" != "kubeflow.steps":
            yield from _find_logins(value, f"{prefix}{name}.")
        else:
            texts = value if isinstance(value, list) else [value]
            if any(isinstance(text, str) and hide_login(text) != text for text in texts):
                yield f"{prefix}{name}"


@configuration("tracking")
class TrackingConfig:
    """The server that a local run reports to when it ends; an outage costs 10 s, not the run."""

    mlflow: Text | None = None
    """URL of an MLflow server, such as http://localhost:5000. It receives parameters, metrics per
    epoch and of the evaluation, the report and the model card. Its experiment is named after the
    pipeline, `name`. A token, or USER:PASSWORD, is in the environment variable
    MLFLOW_TRACKING_TOKEN."""

    def __post_init__(self) -> None:
        """Check the URL without quoting what may be a secret."""
        url = self.mlflow or "http://unset"
        require(
            not {"@", "?", "#"} & set(url),
            "tracking.mlflow must not contain a user name, a password or a query: set the "
            f"environment variable {TOKEN_VARIABLE}.",
        )
        require(
            is_http_url(url),
            f"tracking.mlflow is {url!r}: it must be a URL such as http://localhost:5000.",
        )


@configuration()
class Config:
    """The whole pipeline."""

    data: Text | None = None
    """Folder of images, as label/image or split/label/image (see `ingest.layout`)."""

    output: Text = "output"
    """Folder for everything the pipeline writes; reuse it to reuse results. A folder,
    gs://BUCKET/FOLDER or s3://BUCKET/FOLDER. Unset: with `data`, `output/NAME`, named after the
    images. Other commands find it if it is the only one. For a URL, a run works in a folder below
    `$XDG_STATE_HOME` or `~/.local/state`, and uploads it after every step."""

    name: Text = "images"
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
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    given: list[Text] = field(default_factory=list)
    """Options, as `section.field`, that the user has set; no recipe changes them. The command line
    fills this in."""

    beam_pipeline_args: list[Text] = field(
        default_factory=lambda: [
            "--runner=FnApiRunner",
            "--direct_running_mode=in_memory",
            "--sdk_container_image=none",
        ]
    )
    """Options of Apache Beam, which runs ingest, statistics, transform and evaluation. FnApiRunner,
    because DirectRunner first tries to download a helper program; no container image, because TFX
    would otherwise package itself for remote workers, which takes a second or more per step."""

    def __post_init__(self) -> None:
        """Check names, and the sections against each other."""
        require(
            bool(_NAME.fullmatch(self.name)),
            f"name is {self.name!r}: use up to 100 letters, digits, spaces and . _ - only.",
        )
        for name in ("data", "output"):
            value = getattr(self, name)
            require(value is None or bool(value.strip()), f"{name} is empty: name a folder.")
        for name in _find_logins(to_dict(self)):
            raise ConfigurationError(
                f"{name} has a password in its URL, which logs and records would keep: leave it "
                "out, and put credentials into fsspec's configuration, ~/.config/fsspec."
            )
