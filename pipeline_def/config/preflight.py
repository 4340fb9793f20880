"""Checks before a run, without TensorFlow: accelerator and memory."""

import glob
import math
import os

from components.contract.errors import ConfigurationError
from components.host.machine import available_memory, gib
from components.trainer.config.model import APPLICATIONS
from components.trainer.config.training import TrainingConfig
from pipeline_def.config.config import Config

_BYTES = 4
# At least this fraction of the layers' outputs is kept for the backward pass.
_KEPT = 0.5
# Copies of each weight: itself, its gradient, and the state of the optimizer.
_COPIES = {"sgd": 3, "adam": 4, "adamw": 4}


def check_memory(config: Config, *, images: int) -> None:
    """Raise an error if training will certainly need more memory than this machine has.

    It does not check networks for small images, nor accelerators, which have their own memory.

    Args:
        config: resolved.
        images: number of training images.

    Raises:
        ConfigurationError: with settings that would fit.
    """
    application = APPLICATIONS.get(config.model.name)
    frozen = config.model.pretrained and config.transfer.unfreeze != "all"
    others = _has_gpu() or "TPU_NAME" in os.environ or "TF_CONFIG" in os.environ
    if application is None or frozen or (others and config.training.accelerator != "cpu"):
        return
    available = available_memory()
    for_weights = application.parameters * _BYTES * _COPIES[config.training.optimizer]
    values = application.outputs * (config.transform.size or 0) ** 2
    each = _BYTES if config.training.precision == "float32" else _BYTES / 2
    per_image = values * _KEPT * each
    batch = min(config.training.batch_size, images)
    needed = for_weights + per_image * math.ceil(batch / config.training.accumulate)
    if needed <= available:
        return
    change = "choose a smaller --model.name or --transform.size"
    if fitting := max(0, int((available - for_weights) // per_image)):
        parts = math.ceil(batch / fitting)
        change = f"compute each batch in parts with --training.accumulate {parts}, or {change}"
    raise ConfigurationError(
        f"Training {config.model.name} on batches of {batch} images of {config.transform.size} "
        f"pixels takes at least {gib(needed)} of memory, but only {gib(available)} are available: "
        f"{change}."
    )


def check_accelerator(training: TrainingConfig) -> None:
    """Raise `ConfigurationError` if this machine certainly lacks `training.accelerator`."""
    kind = training.accelerator
    missing = {
        "gpu": not _has_gpu() and "this machine has no GPU",
        "workers": "TF_CONFIG" not in os.environ and "TF_CONFIG is not set",
        "tpu": "TPU_NAME" not in os.environ and "TPU_NAME is not set",
    }
    if reason := missing.get(kind):
        raise ConfigurationError(
            f"training.accelerator is {kind}, but {reason}: choose cpu or auto."
        )


def _has_gpu() -> bool:
    # Of NVIDIA, of AMD, and in the Windows Subsystem for Linux.
    return any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")))
