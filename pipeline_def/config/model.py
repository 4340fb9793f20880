"""Which network is trained: every choice, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require


@dataclass(frozen=True)
class ModelConfig:
    """Which network is trained."""

    name: Literal["auto", "cnn", "mobilenet_v2"] = "auto"
    """cnn: four convolutions, for small images. mobilenet_v2: MobileNetV2, for photographs.
    auto: mobilenet_v2 from 96 pixels on, if there are weights to start from or 10,000 images;
    else cnn."""

    weights: str = "none"
    """Where mobilenet_v2 starts from: none (random), imagenet (downloaded by Keras), or the path
    of a Keras weights file without the top."""

    fine_tune: bool = False
    """Train the pretrained layers too, not only the new head; needs more images."""

    width: int = 32
    """Channels of the first convolution of cnn; the later ones have up to four times as many."""

    dropout: float = 0.2
    """Fraction of the features left out at random before the last layer, against overfitting."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        require(0 <= self.dropout < 1, f"model.dropout is {self.dropout}: it must be in [0, 1).")
        require(self.width >= 1, f"model.width is {self.width}: it must be at least 1.")
        require(
            self.weights == "none" or self.name != "cnn",
            f"model.weights is {self.weights!r}: model.name cnn has no pretrained weights.",
        )
