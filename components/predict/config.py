"""The choices of prediction, as one frozen dataclass that travels to the executor as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from components.contract.configuration import require
from components.contract.kinds import check_types


@dataclass(frozen=True)
class PredictConfig:
    """What is asked of a model, and how much at once."""

    folder: str | None = None
    """Folder, a path or a URL, whose images the model labels at the end of a run if it is blessed.
    Unset: the pipeline has no such step. `local_runner.py predict` is given its files itself."""

    top: int = 3
    """Labels for each image, the most probable first."""

    batch: int = 64
    """Images that the model is asked about at once. Larger batches are hardly faster on CPUs."""

    batch_mpixels: float = 32.0
    """Fewer images at once when they have more pixels (million) than this in all: they are decoded
    at the same time, at about 15 bytes a pixel. A single image may be larger."""

    shard_images: int = 5000
    """Files of each shard that the step of the pipeline writes; shards are what Beam's workers
    share."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "predict")
        for name in ("top", "batch", "shard_images"):
            value = getattr(self, name)
            require(value >= 1, f"predict.{name} is {value}: it must be at least 1.")
        require(
            self.batch_mpixels > 0,
            f"predict.batch_mpixels is {self.batch_mpixels}: it must be above 0.",
        )
