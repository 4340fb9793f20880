"""Whether a training fits the memory, asked before a run begins and without TensorFlow."""

from __future__ import annotations

import glob
import math
import os
from typing import NamedTuple

from components.contract.errors import ConfigurationError
from components.contract.machine import available_memory, gib
from pipeline_def.config.config import Config
from pipeline_def.config.training import TrainingConfig


class Footprint(NamedTuple):
    """What of a network lies in memory."""

    parameters: float
    """Millions, with a head of ten classes."""
    outputs: float
    """Values that all layers put out together, for each pixel of the image."""


_FOOTPRINTS = {
    "mobilenet_v2": Footprint(2.3, 444),
    "mobilenet_v3_small": Footprint(0.9, 161),
    "mobilenet_v3_large": Footprint(3.0, 404),
    "efficientnet_v2_b0": Footprint(5.9, 325),
    "efficientnet_v2_b1": Footprint(6.9, 440),
    "efficientnet_v2_b2": Footprint(8.8, 503),
    "efficientnet_v2_b3": Footprint(12.9, 603),
    "efficientnet_v2_s": Footprint(20.3, 841),
    "efficientnet_v2_m": Footprint(53.2, 1361),
    "efficientnet_v2_l": Footprint(117.8, 2393),
    "resnet50": Footprint(23.6, 749),
    "resnet50_v2": Footprint(23.6, 634),
    "densenet121": Footprint(7.0, 1004),
    "convnext_tiny": Footprint(27.8, 638),
    "convnext_small": Footprint(49.5, 1016),
    "convnext_base": Footprint(87.6, 1351),
    "convnext_large": Footprint(196.2, 2021),
}
_BYTES = 4
# Of what layers put out, at least so much is kept for the backward pass.
_KEPT = 0.5
# Copies of each weight: itself, its gradient, and what the optimizer remembers.
_COPIES = {"sgd": 3, "adam": 4, "adamw": 4}


def check_memory(config: Config, *, images: int) -> None:
    """Raise an error if training will certainly take more memory than this machine has.

    Says nothing of accelerators, whose memory is their own, and of networks for small images.

    Args:
        config: with all choices made.
        images: to train on.

    Raises:
        ConfigurationError: with what would fit.
    """
    footprint = _FOOTPRINTS.get(config.model.name)
    if footprint is None or _is_frozen(config) or _is_elsewhere(config.training):
        return
    available = available_memory()
    of_weights = footprint.parameters * 1e6 * _BYTES * _COPIES[config.training.optimizer]
    of_image = _bytes_of_image(footprint, config)
    batch = min(config.training.batch_size, images)
    needed = of_weights + of_image * math.ceil(batch / config.training.accumulate)
    if needed <= available:
        return
    fitting = int((available - of_weights) // of_image)
    raise ConfigurationError(
        f"Training {config.model.name} on batches of {batch} images of {config.transform.size} "
        f"pixels takes {gib(needed)} of memory at least, and {gib(available)} are available: "
        f"{_way_out(batch, fitting)}."
    )


def _way_out(batch: int, fitting: int) -> str:
    if fitting < 1:
        return "choose a smaller --model.name or --transform.size"
    parts = math.ceil(batch / fitting)
    return (
        f"compute them in parts, --training.accumulate {parts}, or choose a smaller --model.name "
        f"or --transform.size"
    )


def _bytes_of_image(footprint: Footprint, config: Config) -> float:
    half = config.training.precision != "float32"
    values = footprint.outputs * (config.transform.size or 0) ** 2
    return values * _KEPT * (_BYTES / 2 if half else _BYTES)


def _is_frozen(config: Config) -> bool:
    """Whether the layers of the network, or most of them, need no backward pass."""
    return config.model.weights != "none" and config.transfer.unfreeze != "all"


def _is_elsewhere(training: TrainingConfig) -> bool:
    """Whether training may find an accelerator, as far as can be told without TensorFlow."""
    if training.accelerator == "cpu":
        return False
    variables = ("TPU_NAME", "TF_CONFIG")
    return any(name in os.environ for name in variables) or bool(glob.glob("/dev/nvidia[0-9]*"))
