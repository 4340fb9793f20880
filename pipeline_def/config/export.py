"""The choices of what is exported beside the model that a server loads."""

from __future__ import annotations

from dataclasses import dataclass, field

from components.contract.configuration import require
from components.contract.kinds import check_types
from components.contract.model_files import LiteKind


@dataclass(frozen=True)
class ExportConfig:
    """Small versions of the model, for LiteRT on phones and small computers."""

    lite: list[LiteKind] = field(default_factory=list)
    """Small versions to make, measure and push: float16, dynamic (weights of 8 bits) and int8
    (weights and activations). They take the pixels of images that are brought to size already."""

    max_drop: float = 0.01
    """How far, 0 to 1, the accuracy of a small version may lie below that of the model on the split
    that judges; one that loses more is not pushed."""

    calibration_images: int = 256
    """Training images, drawn at random, by which the ranges of int8 are measured."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "export")
        require(
            0 <= self.max_drop <= 1, f"export.max_drop is {self.max_drop}: it must be from 0 to 1."
        )
        require(
            self.calibration_images >= 1,
            f"export.calibration_images is {self.calibration_images}: it must be at least 1.",
        )
        require(
            len(set(self.lite)) == len(self.lite),
            f"export.lite is {self.lite}: it names one of them twice.",
        )
