"""Configuration of prediction, for `local_runner.py predict` and ImagePredictor."""

from typing import Annotated

from annotated_types import Gt

from components.contract.configuration import Number, Positive, Text, configuration


@configuration("predict")
class PredictConfig:
    """How a model labels files."""

    folder: Text | None = None
    """Folder, a path or a URL, whose images the model labels at the end of a run if it is blessed.
    Unset: the pipeline has no such step. `local_runner.py predict` takes files as arguments."""

    top: Positive = 3
    """Labels per image, the most probable first."""

    batch: Positive = 64
    """Images per batch. Larger batches are hardly faster on CPUs."""

    batch_mpixels: Annotated[Number, Gt(0)] = 32.0
    """Maximum total million pixels of a batch, which are decoded at the same time at about 15 bytes
    a pixel. A single image may be larger."""

    shard_images: Positive = 5000
    """Files per shard that the pipeline step writes; Beam's workers process shards in parallel."""
